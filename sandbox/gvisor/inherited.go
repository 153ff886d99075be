//go:build linux

package gvisor

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// closeInherited closes inherited files of a kernel, or its file server, that no flag
// names, such as --spec-fd=5. Libraries of the server open some without O_CLOEXEC, and a
// child that is started in that very moment inherits them; one may be the control socket
// of another kernel.
func closeInherited(args []string) {
	given := make(map[int]bool)
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if fd, err := strconv.Atoi(value); err == nil && (strings.HasSuffix(name, "-fd") || strings.HasSuffix(name, "-fds")) {
			given[fd] = true
		}
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // it is in its chroot already
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
