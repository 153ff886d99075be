package inside

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

const (
	// shellTries is how many shells in a row may exit before they read a command.
	shellTries = 3
	// wedgedLooks is how many checks in a row may find a shell wedged before it is killed.
	wedgedLooks = 3

	terminated = 128 + int(syscall.SIGTERM)
)

// restarted is the note of a command that restarted its shell.
const restarted = "this is a new shell"

// execInShell runs a command in the shell it names, after the commands before it.
func (r *Runner) execInShell(ctx context.Context, o *op) runner.Result {
	o.markAccepted()
	if !o.turn.wait(ctx, o) {
		r.running.Go(func() { r.shells.leave(o.turn) })
		return runner.Result{Exit: terminated, Killed: true}
	}
	defer r.shells.leave(o.turn)
	if strings.IndexByte(o.call.Exec.Command, 0) >= 0 {
		return runner.Result{Exit: -1, Error: "the command contains a NUL byte"}
	}
	var res runner.Result
	if o.call.Exec.Restart {
		r.endShell(o.turn.slot)
		res.Note = restarted
		if o.call.Exec.Command == "" {
			return res
		}
	}
	for range shellTries {
		sh, again, err := r.shellOf(ctx, o.turn.slot)
		if err != nil {
			return runner.Result{Exit: -1, Error: err.Error()}
		}
		res.NewShell = res.NewShell || again
		err = r.runIn(ctx, sh, o, &res)
		if !errors.Is(err, errShellEnded) {
			if err != nil {
				res.Exit, res.Error = -1, err.Error()
			}
			res.Output, res.Omitted = o.output.take()
			return res
		}
		o.output.take() // that was the shell's
	}
	return runner.Result{Exit: -1, Error: errShellEnded.Error()}
}

// shellOf returns the shell of a slot. It starts one if there is none, and then reports
// whether there was one before. A shell leaves its directory behind, so that a later
// runner knows too.
func (r *Runner) shellOf(ctx context.Context, slot *shellSlot) (sh *shell, again bool, err error) {
	sh, again = r.shells.shell(slot)
	if sh != nil {
		return sh, false, nil
	}
	dir := filepath.Join(r.opts.Shells, "@"+slot.name)
	_, err = os.Stat(dir)
	again = again || !errors.Is(err, fs.ErrNotExist)
	if sh, err = r.startShell(ctx, dir); err != nil {
		return nil, false, err
	}
	r.shells.put(slot, sh)
	return sh, again, nil
}

// endShell ends the shell of a slot, so that the next command starts a new one. Its
// result does not set NewShell, because a restart was requested.
func (r *Runner) endShell(slot *shellSlot) {
	if sh, _ := r.shells.shell(slot); sh != nil {
		sh.end()
		_ = sh.cmd.Process.Kill() // it is idle, and may ignore EOF
		<-sh.exited
	}
	_ = os.RemoveAll(filepath.Join(r.opts.Shells, "@"+slot.name))
	r.shells.drop(slot)
}

// runIn runs the command of o in sh and sets its outcome in res.
func (r *Runner) runIn(ctx context.Context, sh *shell, o *op, res *runner.Result) error {
	born := time.Now()
	c, err := r.run(sh, o)
	if err != nil {
		return err
	}
	var left []*shellPipe // FIFOs that the shell has left
	defer func() {
		for _, p := range left {
			p.drainAll()
			p.out.detach(false)
		}
		r.releaseOutput(sh, o)
	}()
	crash.At(crash.RunnerStarted)
	looks := 0
	res.TimedOut, res.Killed = o.await(ctx, c.done, func() {
		if looks++; !sh.wedged(c) {
			looks = 0
		}
		switch looks {
		case 1: // the command may have redirected the output with the status
			was := sh.pipe()
			if r.redirect(sh, c, o) {
				left = append(left, was)
			}
		case wedgedLooks:
			_ = sh.cmd.Process.Kill()
		}
	})
	ended := res.TimedOut || res.Killed
	if ended {
		r.abort(ctx, sh, c, o, born)
	}
	<-c.done
	res.Exit = c.code
	switch {
	case ended && c.code < 128:
		res.Exit = terminated
	case c.unread && !ended:
		return errShellEnded
	case looks >= wedgedLooks:
		res.Error = "the shell no longer obeyed and was ended"
	}
	return nil
}

// abort ends the command of o and the processes it started. The shell survives if it
// can: it is told to skip the rest before the processes that it waits for are ended.
func (r *Runner) abort(ctx context.Context, sh *shell, c *shellCommand, o *op, begun time.Time) {
	born := proctree.TicksAt(begun)
	_ = sh.cmd.Process.Signal(abortSignal)
	mine := func(q proctree.Process) bool {
		return q.PID != sh.cmd.Process.Pid && (belongsTo(q, o) || sh.forked(q, born))
	}
	r.end(ctx, o, mine, r.opts.Grace)
	timeout := time.NewTimer(r.opts.Grace)
	defer timeout.Stop()
	select {
	case <-c.done:
	case <-timeout.C:
		_ = sh.cmd.Process.Kill()
		<-c.done
	}
	r.end(ctx, o, mine, 0) // what it started meanwhile
}

// forked reports whether q is a subshell of the current command: a fork of the shell,
// without the op's variable, that was started after the command. Background jobs of
// earlier commands may have such forks too.
func (sh *shell) forked(q proctree.Process, born uint64) bool {
	if q.Session != sh.cmd.Process.Pid || q.Born() < born {
		return false
	}
	if _, ok := q.Variable(opVariable); ok {
		return false
	}
	all, err := proctree.List()
	if err != nil {
		return false
	}
	byPID := make(map[int]proctree.Process, len(all))
	for _, p := range all {
		byPID[p.PID] = p
	}
	for p, ok := byPID[q.Parent]; ok && p.Session == q.Session && p.PID != q.Session; p, ok = byPID[p.Parent] {
		if p.Born() < born {
			return false
		}
	}
	return true
}
