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

// terminalHistory is how much earlier output a new viewer gets.
const terminalHistory = 64 << 10

// terminal is a running terminal, or one that ended recently.
type terminal struct {
	what   runner.Terminal // except its size
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
	history    []byte           // guarded by mu; the last output
	viewers    map[*viewer]bool // guarded by mu; nil once it has ended
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

// finish marks the terminal as ended and lets its viewers read the rest.
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
		ID: t.what.ID, Command: runner.TruncateArgs(t.what.Command), PID: t.cmd.Process.Pid,
		Rows: t.rows, Cols: t.cols, Attached: len(t.viewers),
	}
	if t.over() {
		rep.Exit = &t.exit
	}
	return rep
}

// pump sends output to the viewers until EOF or until the read deadline; then it reads
// what is buffered.
func (t *terminal) pump() {
	buf := make([]byte, 32<<10)
	for {
		n, err := t.master.Read(buf)
		t.write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.pumpBuffered(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

// pumpBuffered reads the buffered output without waiting for more.
func (t *terminal) pumpBuffered(buf []byte) {
	raw, err := t.master.SyscallConn()
	if err != nil {
		return
	}
	for total, n := 0, 1; n > 0 && total < maxPipe; total += n {
		n = 0
		_ = raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), buf) })
		n = max(n, 0)
		t.write(buf[:n])
	}
}

// write appends b to the history and sends it to the viewers. A slow viewer blocks the
// terminal; after viewerTimeout it is disconnected.
func (t *terminal) write(b []byte) {
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
		timeout := time.NewTimer(viewerTimeout)
		select {
		case v.out <- b:
		case <-v.gone:
		case <-timeout.C:
			v.leave()
		}
		timeout.Stop()
	}
}
