// Package pidfd is handles of processes. macOS has no pidfds: a kqueue reports the end of
// the process, and a signal is sent only while it has not. Between the two the number
// could pass to another process, which takes a whole round of process numbers.
package pidfd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// waitEvery is how often Wait looks whether its context has ended.
const waitEvery = 50 * time.Millisecond

// Process is a process, whether it still runs or not.
type Process struct {
	PID   int
	queue *os.File

	mu    sync.Mutex
	ended bool // guarded by mu; the kqueue reports it once
}

// Open opens the process that has this number now.
func Open(pid int) (*Process, error) {
	fd, err := unix.Kqueue()
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	unix.CloseOnExec(fd)
	p := &Process{PID: pid, queue: os.NewFile(uintptr(fd), "kqueue")}
	change := unix.Kevent_t{Fflags: unix.NOTE_EXIT}
	unix.SetKevent(&change, pid, unix.EVFILT_PROC, unix.EV_ADD)
	if _, err := unix.Kevent(fd, []unix.Kevent_t{change}, nil, nil); err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, errors.Join(err, p.queue.Close()))
	}
	return p, nil
}

// Signal sends s, unless the process has ended.
func (p *Process) Signal(s unix.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.look() {
		_ = unix.Kill(p.PID, s)
	}
}

// Wait returns nil once the process has ended. Only one may wait at a time.
func (p *Process) Wait(ctx context.Context) error {
	for !p.Ended() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(waitEvery):
		}
	}
	return nil
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.look()
}

// look asks the kqueue. It must be called with mu held.
func (p *Process) look() bool {
	if !p.ended {
		n, err := unix.Kevent(int(p.queue.Fd()), nil, make([]unix.Kevent_t, 1), new(unix.Timespec))
		p.ended = err == nil && n > 0
	}
	return p.ended
}

// Close closes the handle. A child process that has ended is reaped.
func (p *Process) Close() {
	if p.Ended() {
		_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
	}
	_ = p.queue.Close()
}
