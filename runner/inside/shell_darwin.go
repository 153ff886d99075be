package inside

import (
	"math"
	"syscall"
)

const (
	// bashPath is empty, because there are no named shells here. The bash of macOS is
	// 3.2, which cannot read a given number of bytes.
	bashPath = ""
	// abortSignal and ioctlUnread are for named shells.
	abortSignal = syscall.SIGEMT
	ioctlUnread = 0x4004667f // FIONREAD
)

// shellAttr starts a shell in a session of its own.
func shellAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// processes is the number of processes and threads, which is unknown here.
func processes() uint64 { return math.MaxUint64 }
