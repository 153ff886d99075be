package inside

import (
	"math"
	"syscall"
)

const (
	// bashPath is empty: no shell lives on from command to command here. The bash of
	// macOS is 3.2, which cannot read a command of a given length.
	bashPath = ""
	// abortSignal and ioctlUnread are for shells that live on.
	abortSignal = syscall.SIGEMT
	ioctlUnread = 0x4004667f // FIONREAD
)

// shellAttr starts a shell in a session of its own.
func shellAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// processes is how many processes and threads there are, which is not known.
func processes() uint64 { return math.MaxUint64 }
