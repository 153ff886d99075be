package inside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

const (
	// endedRetention is how long an ended terminal is listed.
	endedRetention = time.Minute

	defaultRows, defaultCols = 24, 80
	defaultTerm              = "TERM=xterm-256color"

	// terminalVariable is in the environment of every process of a terminal.
	terminalVariable = "DORMOUSE_TERMINAL"
)

// terminals is the terminals of a runner by ID.
type terminals struct {
	mu sync.Mutex
	by map[string]*terminal // guarded by mu
}

// living returns the running terminal of an ID, or nil. It must be called with mu
// held.
func (ts *terminals) living(id string) *terminal {
	if t := ts.by[id]; t != nil && !t.over() {
		return t
	}
	return nil
}

// evictEnded drops the terminals that ended before endedRetention, and the oldest of too
// many. It must be called with mu held.
func (ts *terminals) evictEnded(now time.Time) {
	var ended []*terminal
	for id, t := range ts.by {
		if !t.over() {
			continue
		}
		if now.Sub(t.ended) > endedRetention {
			delete(ts.by, id)
			continue
		}
		ended = append(ended, t)
	}
	slices.SortFunc(ended, func(a, b *terminal) int { return b.ended.Compare(a.ended) })
	for _, t := range ended[min(len(ended), runner.MaxTerminals):] {
		delete(ts.by, t.what.ID)
	}
}

// count must be called with mu held.
func (ts *terminals) count() int {
	n := 0
	for _, t := range ts.by {
		if !t.over() {
			n++
		}
	}
	return n
}

// attachTerminal attaches to a running terminal, or starts it.
func (r *Runner) attachTerminal(ctx context.Context, what runner.Terminal) (endpoint, error) {
	ts := &r.terminals
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.living(what.ID)
	if t == nil {
		// The server that requested it may be fenced off by now.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ts.evictEnded(time.Now())
		if ts.count() >= runner.MaxTerminals {
			return nil, fmt.Errorf("%d terminals live, and no more can: %w", runner.MaxTerminals, dormouse.ErrConflict)
		}
		var err error
		if t, err = r.startTerminal(ctx, what); err != nil {
			return nil, fmt.Errorf("start the terminal: %w", err)
		}
		if ts.by == nil {
			ts.by = make(map[string]*terminal)
		}
		ts.by[what.ID] = t
	} else if what.Rows != 0 && what.Cols != 0 {
		if err := t.resize(what.Rows, what.Cols); err != nil {
			return nil, err
		}
	}
	return t.attach()
}

// startTerminal starts the command of a terminal.
func (r *Runner) startTerminal(ctx context.Context, what runner.Terminal) (*terminal, error) {
	if len(what.Command) == 0 {
		what.Command = []string{r.shell, "-l"}
	}
	dir := r.opts.Workspace
	if what.Dir != "" {
		var err error
		if dir, err = r.resolve(what.Dir); err != nil {
			return nil, err
		}
	}
	what.Rows, what.Cols = cmp.Or(what.Rows, defaultRows), cmp.Or(what.Cols, defaultCols)
	master, tty, err := openPTY(what.Rows, what.Cols)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tty.Close() }()
	cmd := exec.Command(what.Command[0], what.Command[1:]...) //nolint:gosec,noctx // running commands is its purpose; superviseTerminal ends it
	cmd.Dir = dir
	cmd.Env = slices.Concat(r.opts.Env, []string{defaultTerm}, what.Env,
		[]string{terminalVariable + "=" + what.ID, runnerVariable + "=" + strconv.Itoa(os.Getpid())})
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	t := newTerminal(what, cmd, master, &r.active)
	if err := r.startOwned(cmd); err != nil {
		_ = master.Close()
		return nil, err
	}
	living := context.WithoutCancel(ctx) // it outlives the stream that asked for it
	r.running.Go(func() { r.superviseTerminal(living, t) })
	return t, nil
}

// startOwned starts cmd and registers it under one lock, so that reap never takes it for
// an orphan.
func (r *Runner) startOwned(cmd *exec.Cmd) error {
	r.procMu.Lock()
	defer r.procMu.Unlock()
	if r.closed {
		return errors.New("runner is ending")
	}
	if err := r.startCommand(cmd); err != nil {
		return err
	}
	r.owned[cmd.Process.Pid] = true
	return nil
}

func (r *Runner) disownCommand(cmd *exec.Cmd) {
	r.procMu.Lock()
	defer r.procMu.Unlock()
	delete(r.owned, cmd.Process.Pid)
}

// superviseTerminal waits for the command of a terminal and reads all its output. It
// ends the processes of the terminal when that is killed.
func (r *Runner) superviseTerminal(ctx context.Context, t *terminal) {
	exited := make(chan struct{})
	r.running.Go(func() {
		defer close(exited)
		_ = t.cmd.Wait() // how it ended is in its state
		r.disownCommand(t.cmd)
	})
	printed := make(chan struct{})
	r.running.Go(func() {
		defer close(printed)
		t.pump()
	})
	select {
	case <-exited:
	case <-t.end:
		r.endTerminal(ctx, t)
		<-exited
	}
	// A child may keep the terminal open; the output of the command itself is there
	// by now.
	late := time.NewTimer(lateOutput)
	defer late.Stop()
	select {
	case <-printed:
	case <-late.C:
		_ = t.master.SetReadDeadline(time.Now())
		<-printed
	}
	r.terminals.mu.Lock()
	t.finish((&process{cmd: t.cmd}).exit())
	r.terminals.mu.Unlock()
	r.active.touch()
}

// endTerminal ends the processes of a terminal.
func (r *Runner) endTerminal(ctx context.Context, t *terminal) {
	ending, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	pid, us := t.cmd.Process.Pid, strconv.Itoa(os.Getpid())
	err := proctree.End(ending, func(q proctree.Process) bool {
		if q.PID == pid || q.Session == pid {
			return true
		}
		if id, _ := q.Variable(terminalVariable); id != t.what.ID {
			return false
		}
		runner, _ := q.Variable(runnerVariable)
		return runner == us
	}, r.opts.Grace)
	if err != nil {
		r.log.ErrorContext(ctx, "terminal not ended", "terminal", t.what.ID, "error", err)
	}
}

// endTerminals kills every terminal; superviseTerminal waits for them.
func (r *Runner) endTerminals() {
	r.terminals.mu.Lock()
	defer r.terminals.mu.Unlock()
	for _, t := range r.terminals.by {
		t.kill()
	}
}

// reportTerminals lists the terminals.
func (r *Runner) reportTerminals(k *conn, f runner.Frame) ([]runner.TerminalReport, error) {
	if err := r.admitted(k, f); err != nil {
		return nil, err
	}
	ts := &r.terminals
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.evictEnded(time.Now())
	var all []runner.TerminalReport
	for _, id := range slices.Sorted(maps.Keys(ts.by)) {
		all = append(all, ts.by[id].report())
	}
	return all, nil
}

// findTerminal returns the running terminal that f names, nil if there is none.
func (r *Runner) findTerminal(k *conn, f runner.Frame) (*terminal, error) {
	if f.Terminal == nil {
		return nil, fmt.Errorf("%s names no terminal: %w", f.Kind, dormouse.ErrInvalid)
	}
	if err := r.admitted(k, f); err != nil {
		return nil, err
	}
	r.terminals.mu.Lock()
	defer r.terminals.mu.Unlock()
	return r.terminals.living(f.Terminal.ID), nil
}

func (r *Runner) resizeTerminal(k *conn, f runner.Frame) error {
	t, err := r.findTerminal(k, f)
	switch {
	case err != nil:
		return err
	case t == nil:
		return fmt.Errorf("no such terminal: %w", dormouse.ErrNotFound)
	case f.Terminal.Rows == 0 || f.Terminal.Cols == 0:
		return fmt.Errorf("a terminal of %d by %d: %w", f.Terminal.Rows, f.Terminal.Cols, dormouse.ErrInvalid)
	}
	return t.resize(f.Terminal.Rows, f.Terminal.Cols)
}

// stopTerminal kills a terminal and returns once its processes are gone.
func (r *Runner) stopTerminal(k *conn, f runner.Frame) error {
	t, err := r.findTerminal(k, f)
	if err != nil || t == nil {
		return err
	}
	t.kill()
	select {
	case <-t.done:
	case <-k.done:
	}
	return nil
}
