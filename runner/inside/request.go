package inside

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
)

func (r *Runner) answer(ctx context.Context, k *conn, f runner.Frame) runner.Frame {
	var a runner.Frame
	var err error
	switch f.Kind { //nolint:exhaustive // the rest are no requests
	case runner.KindAsk:
		a.Report, err = r.ask(ctx, k, f)
	case runner.KindKill:
		err = r.kill(k, f)
	}
	if err != nil {
		a.Refusal, a.Detail = runner.RefusalOf(err)
	}
	return a
}

func (r *Runner) ask(ctx context.Context, k *conn, f runner.Frame) (*runner.Report, error) {
	o, err := r.find(k, f)
	if err != nil {
		return nil, err
	}
	return r.report(ctx, f.Op, o), nil
}

// find returns the op a request is about, nil if it was never seen.
func (r *Runner) find(k *conn, f runner.Frame) (*op, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ops[f.Op], r.admit(k, f)
}

// start accepts a call. It must be called in the order of the requests: a kill that
// overtook its start would find no op.
func (r *Runner) start(ctx context.Context, k *conn, f runner.Frame) (*op, error) {
	if f.Call == nil {
		return nil, fmt.Errorf("start without a call: %w", dormouse.ErrInvalid)
	}
	if err := f.Call.Validate(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(k, f); err != nil {
		return nil, err
	}
	o := r.ops[f.Call.Op]
	if o == nil {
		o = newOp(*f.Call)
		o.turn = r.reserveShell(*f.Call)
		r.ops[f.Call.Op] = o
		r.running.Go(func() { r.perform(ctx, o) })
	}
	return o, nil
}

// answerStart answers a start once the op is accepted, or with the error.
func (r *Runner) answerStart(k *conn, f runner.Frame, o *op, err error) {
	if err != nil {
		why, detail := runner.RefusalOf(err)
		k.answer(f, runner.Frame{Refusal: why, Detail: detail})
		return
	}
	<-o.accepted
	k.reply(f, runner.Frame{}, true)
}

// perform executes an op: it journals the call, runs it, and journals the result.
func (r *Runner) perform(ctx context.Context, o *op) {
	defer o.markAccepted()
	if o.call.Kind == dormouse.OpRead {
		o.complete(runner.Result{}) // a read runs whenever it is waited for, and is not journaled
		return
	}
	if err := r.journal.accept(o.call); err != nil {
		r.log.ErrorContext(ctx, "op not recorded", "op", o.call.Op, "error", err)
		if o.turn != nil { // the ops behind it must not wait for it
			r.running.Go(func() { r.shells.leave(o.turn) })
		}
		o.complete(runner.Result{Exit: -1, Error: "not started: " + err.Error()})
		return
	}
	crash.At(crash.RunnerAccepted)
	res := r.carryOut(ctx, o)
	if v := o.victim.Load(); v != nil {
		res.Error = v.String()
	}
	spilled, err := r.journal.finish(o.call.Op, res)
	if err != nil {
		r.log.ErrorContext(ctx, "op result only in memory", "op", o.call.Op, "error", err)
	}
	if spilled {
		res.Output, o.spilled = nil, true
	}
	crash.At(crash.RunnerFinished)
	o.result = res
	close(o.done)
}

func (r *Runner) carryOut(ctx context.Context, o *op) runner.Result {
	if o.call.Kind == dormouse.OpTask {
		return r.task(ctx, o)
	}
	defer close(o.over)
	switch {
	case o.call.Write != nil:
		return r.write(o.call.Op, *o.call.Write)
	case o.call.Edit != nil:
		return r.edit(o.call.Op, *o.call.Edit)
	}
	res := r.command(ctx, o)
	r.saveLongOutput(o.call.Op, *o.call.Exec, &res)
	return res
}

func (r *Runner) command(ctx context.Context, o *op) runner.Result {
	switch {
	case o.turn != nil:
		return r.execInShell(ctx, o)
	case o.call.Exec.Restart && o.call.Exec.Command == "":
		return runner.Result{Note: restarted} // every command has a shell of its own
	}
	return r.exec(ctx, o)
}

// report returns the state of o.
func (r *Runner) report(ctx context.Context, id dormouse.OpID, o *op) *runner.Report {
	switch {
	case o == nil:
		return &runner.Report{Op: id, State: runner.NeverSeen}
	case !o.finished():
		return &runner.Report{Op: id, State: runner.Running}
	}
	res := o.result
	if o.call.Kind == dormouse.OpRead {
		res = r.performRead(ctx, o.call)
	}
	if o.spilled {
		var err error
		if res.Output, err = os.ReadFile(r.journal.output(id)); err != nil {
			res.Error = err.Error()
		}
	}
	return &runner.Report{Op: id, State: runner.Finished, Result: &res}
}

// wait answers once the op has finished, unless the wait is cancelled.
func (r *Runner) wait(ctx context.Context, k *conn, f runner.Frame, detached <-chan struct{}) (runner.Frame, bool) {
	o, err := r.find(k, f)
	if err == nil && o == nil {
		err = runner.ErrNeverSeen
	}
	if err != nil {
		why, detail := runner.RefusalOf(err)
		return runner.Frame{Refusal: why, Detail: detail}, true
	}
	stop := o.output.follow(func(b []byte) { k.sendOutput(f.ID, b) })
	defer stop()
	select {
	case <-o.done:
		if o.call.Kind == dormouse.OpRead { // a read runs only now
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			r.running.Go(func() {
				defer cancel()
				select {
				case <-ctx.Done():
				case <-detached:
				case <-k.done:
				}
			})
		}
		return runner.Frame{Report: r.report(ctx, f.Op, o)}, true
	case <-detached:
	case <-k.done:
	}
	return runner.Frame{}, false
}

// kill ends the processes of an op and returns once they are gone.
func (r *Runner) kill(k *conn, f runner.Frame) error {
	r.mu.Lock()
	err := r.admit(k, f)
	o := cmp.Or(r.ops[f.Op], r.tasks[f.Op]) // a task outlives its record
	r.mu.Unlock()
	if err != nil || o == nil {
		return err
	}
	o.kill()
	for _, ended := range []chan struct{}{o.done, o.over} {
		select {
		case <-ended:
		case <-k.done:
		}
	}
	return nil
}

// forget drops finished ops; the log of a task stays. Errors are ignored, because they
// only cost disk space.
func (r *Runner) forget(k *conn, f runner.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.admit(k, f) != nil {
		return
	}
	for _, id := range f.Ops {
		o := r.ops[id]
		if o == nil || !o.finished() {
			continue
		}
		if o.call.Kind != dormouse.OpRead && r.journal.forget(o) != nil {
			continue
		}
		delete(r.ops, id)
	}
}
