package connlimit

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"
)

// Left reports whether the client of a request has closed its end of the connection, as
// far as this machine has heard. The server notices that by itself a moment after it has
// read the request; a caller checks it before it begins something expensive.
func Left(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return false
	}
	sock, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		return false
	}
	left := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} //nolint:gosec // descriptors are small
		n, err := unix.Poll(p, 0)
		left = err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return left || err != nil // else it is closed at this end
}
