//go:build linux

package gvisor

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// keepGiven closes the files that a kernel, or its file server, was not given:
// those that no flag names, such as --spec-fd=5. Libraries of the server open some
// that a child inherits if it is started in that very moment, and one of them is
// the control socket of another kernel that starts. Our own are not inherited.
func keepGiven(args []string) {
	given := make(map[int]bool)
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if fd, err := strconv.Atoi(value); err == nil && (strings.HasSuffix(name, "-fd") || strings.HasSuffix(name, "-fds")) {
			given[fd] = true
		}
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // it was closed in already, by one that did this
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= unix.Stderr || given[fd] {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
