// Package pidfd is handles of processes: their end can be waited for without polling, and a
// signal never reaches another process that got the same number later.
package pidfd

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a process, whether it still runs or not.
type Process struct {
	PID  int
	file *os.File
}

// Open opens the process that has this number now.
func Open(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	return &Process{PID: pid, file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Signal sends s, unless the process has ended.
func (p *Process) Signal(s unix.Signal) {
	if c, err := p.file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), s, nil, 0) })
	}
}

// Wait returns nil once the process has ended. Only one may wait at a time.
func (p *Process) Wait(ctx context.Context) error {
	c, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = p.file.SetReadDeadline(time.Unix(1, 0))
	})
	err = c.Read(func(fd uintptr) bool { return ended(fd) })
	if !stop() {
		<-expired
		_ = p.file.SetReadDeadline(time.Time{})
	}
	return err
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	over := false
	if c, err := p.file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { over = ended(fd) })
	}
	return over
}

func ended(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // descriptors are small
	return err == nil && n > 0
}

// Close closes the handle. A child process that has ended is reaped.
func (p *Process) Close() {
	if c, err := p.file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			_ = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG, nil)
		})
	}
	_ = p.file.Close()
}
