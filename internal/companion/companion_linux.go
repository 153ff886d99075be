package companion

import "syscall"

// dieWith has a process sent a signal when the thread that starts it ends.
func dieWith(attr *syscall.SysProcAttr, last syscall.Signal) { attr.Pdeathsig = last }
