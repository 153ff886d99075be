package inside

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner"
)

// terminalHistory is what a stream is shown of what was printed before it.
const terminalHistory = 64 << 10

// terminal is one that lives here or did a moment ago.
type terminal struct {
	what   runner.Terminal // but for its size
	cmd    *exec.Cmd
	master *os.File
	active *activity
	end    chan struct{} // closed to end its processes
	once   sync.Once
	done   chan struct{} // closed once exit and ended are set
	exit   int
	ended  time.Time

	mu         sync.Mutex
	rows, cols uint16           // guarded by mu
	history    []byte           // guarded by mu; what was printed last
	viewers    map[*viewer]bool // guarded by mu; nil once it is over
}

func newTerminal(what runner.Terminal, cmd *exec.Cmd, master *os.File, active *activity) *terminal {
	return &terminal{
		what:    what,
		cmd:     cmd,
		master:  master,
		active:  active,
		end:     make(chan struct{}),
		done:    make(chan struct{}),
		rows:    what.Rows,
		cols:    what.Cols,
		viewers: make(map[*viewer]bool),
	}
}

func (t *terminal) kill() { t.once.Do(func() { close(t.end) }) }

func (t *terminal) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// finish lets everyone attached read to the end and go.
func (t *terminal) finish(exit int) {
	t.mu.Lock()
	viewers := t.viewers
	t.viewers, t.history = nil, nil
	t.mu.Unlock()
	for v := range viewers {
		close(v.out)
	}
	_ = t.master.Close()
	t.exit, t.ended = exit, time.Now()
	close(t.done)
}

func (t *terminal) resize(rows, cols uint16) error {
	raw, err := t.master.SyscallConn()
	if err != nil {
		return fmt.Errorf("resize: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	if err = cmp.Or(err, failed); err != nil {
		return fmt.Errorf("resize: %w", err)
	}
	t.rows, t.cols = rows, cols
	return nil
}

func (t *terminal) report() runner.TerminalReport {
	t.mu.Lock()
	defer t.mu.Unlock()
	rep := runner.TerminalReport{
		ID: t.what.ID, Command: runner.ShortWords(t.what.Command), PID: t.cmd.Process.Pid,
		Rows: t.rows, Cols: t.cols, Attached: len(t.viewers),
	}
	if t.over() {
		rep.Exit = &t.exit
	}
	return rep
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
