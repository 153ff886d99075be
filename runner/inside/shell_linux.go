package inside

import (
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// bashPath is the program of named shells.
	bashPath = "/bin/bash"
	// abortSignal makes a shell skip the rest of its command: the last of the
	// real-time signals, which nothing else uses.
	abortSignal = syscall.Signal(64)
	// ioctlUnread asks how much of what was written to a pipe has not been read.
	ioctlUnread = unix.TIOCINQ
)

// shellAttr puts a shell in a session of its own and kills it if the runner dies.
func shellAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// processes is how many processes and threads there are.
func processes() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return math.MaxUint64
	}
	return uint64(info.Procs)
}
