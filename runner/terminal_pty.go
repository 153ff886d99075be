//go:build linux

package runner

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

const (
	// terminalHistory is what a stream is shown of what was printed before it.
	terminalHistory = 64 << 10
	// viewerDepth is how many pieces a viewer may be behind before the terminal
	// waits for it, and viewerPatience for how long.
	viewerDepth    = 16
	viewerPatience = 5 * time.Second
)

// openPTY returns both ends of a new terminal.
func openPTY(rows, cols uint16) (master, tty *os.File, err error) {
	p, tty, err := pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	defer func() { _ = p.Close() }()
	if err = pty.Setsize(p, &pty.Winsize{Rows: rows, Cols: cols}); err == nil {
		master, err = another(p)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), tty.Close())
	}
	return master, tty, nil
}

// another returns a second descriptor of f, whose reads and writes end when it
// alone is closed.
func another(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	dup := -1
	var failed error
	err = raw.Control(func(fd uintptr) {
		dup, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		return nil, errors.Join(err, unix.Close(dup))
	}
	return os.NewFile(uintptr(dup), f.Name()), nil
}

// attach lets one more see the terminal, from what was printed last on.
func (t *terminal) attach() (*viewer, error) {
	in, err := another(t.master)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	v := &viewer{terminal: t, in: in, out: make(chan []byte, viewerDepth), gone: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	v.first = slices.Clone(t.history)
	if t.viewers == nil {
		close(v.out)
		return v, nil
	}
	t.viewers[v] = true
	return v, nil
}

// pump shows what is printed to everyone attached until nobody can print any
// more, or only what is already printed matters.
func (t *terminal) pump() {
	buf := make([]byte, 32<<10)
	for {
		n, err := t.master.Read(buf)
		t.print(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.pumpHeld(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

// pumpHeld reads what the terminal holds, and waits for no more.
func (t *terminal) pumpHeld(buf []byte) {
	raw, err := t.master.SyscallConn()
	if err != nil {
		return
	}
	for total, n := 0, 1; n > 0 && total < maxPipe; total += n {
		n = 0
		_ = raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), buf) })
		n = max(n, 0)
		t.print(buf[:n])
	}
}

// print keeps b and shows it. A viewer that is slow slows the terminal down; one
// that stands still is cut off.
func (t *terminal) print(b []byte) {
	if len(b) == 0 {
		return
	}
	t.active.touch()
	b = slices.Clone(b)
	t.mu.Lock()
	t.history = append(t.history, b...)
	if over := len(t.history) - terminalHistory; over > 0 {
		t.history = slices.Delete(t.history, 0, over)
	}
	viewers := make([]*viewer, 0, len(t.viewers))
	for v := range t.viewers {
		viewers = append(viewers, v)
	}
	t.mu.Unlock()
	for _, v := range viewers {
		select {
		case v.out <- b:
			continue
		default:
		}
		patience := time.NewTimer(viewerPatience)
		select {
		case v.out <- b:
		case <-v.gone:
		case <-patience.C:
			v.leave()
		}
		patience.Stop()
	}
}
