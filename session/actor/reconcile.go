package actor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// reconcile makes the world match Want, in a fresh process or an old one. It
// looks at the state and not at what just happened.
func (a *Actor) reconcile(ctx context.Context) error {
	for ctx.Err() == nil {
		before := a.state.Seq
		w := law.Want(a.state)
		if err := a.reconcileTurns(ctx, w); err != nil {
			return err
		}
		if err := a.reconcileSandbox(ctx, law.Want(a.state)); err != nil {
			return err
		}
		if err := a.reconcileSnapshot(ctx, law.Want(a.state)); err != nil {
			return err
		}
		a.reconcileKills(law.Want(a.state))
		if err := a.reconcileExecs(ctx, law.Want(a.state)); err != nil {
			return err
		}
		w = law.Want(a.state)
		a.reconcileChildren(ctx, w)
		a.notifyParent(ctx, w)
		if err := a.reconcileDeadlines(ctx, w); err != nil {
			return err
		}
		if a.state.Seq != before {
			continue
		}
		a.updateSlot()
		if w.Delete {
			return a.remove(ctx)
		}
		return nil
	}
	return nil
}

// reconcileTurns starts what should run and stops what should not.
func (a *Actor) reconcileTurns(ctx context.Context, w law.Wanted) error {
	wanted := make(map[dormouse.TurnID]law.Work)
	for _, t := range w.Attempts {
		if t.Epoch < a.epoch {
			if err := a.commitOwn(ctx, law.Recover{}); err != nil {
				return err
			}
			return nil // Want again: the attempts have changed
		}
		wanted[t.Turn] = t.Work
	}
	for turn, t := range a.attempts {
		if wanted[turn] != t.Work {
			t.stop(errAttemptOver)
		}
	}
	for _, t := range w.Attempts {
		if a.attempts[t.Turn] == nil {
			a.startAttempt(ctx, t)
		}
	}
	now := a.deps.Clock()
	for _, t := range w.Start {
		if t.Due(now) {
			if err := a.commitOwn(ctx, law.StartAttempt{Turn: t.Turn}); err != nil {
				return err
			}
		}
	}
	for _, t := range w.Take {
		if err := a.take(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// commitOwn commits a verb that Want asked for. If it is refused or the disk is full, it
// is tried again later.
func (a *Actor) commitOwn(ctx context.Context, v law.Verb) error {
	return a.commitOwnAs(ctx, dormouse.ActorServer, v)
}

func (a *Actor) commitOwnAs(ctx context.Context, by dormouse.Actor, v law.Verb) error {
	m := message{by: by, verb: v, reply: make(chan error, 1)}
	if err := a.commit(ctx, m); err != nil {
		return err
	}
	if err := <-m.reply; err != nil {
		a.logger.WarnContext(ctx, "step postponed", "verb", fmt.Sprintf("%T", v), "error", err)
		a.postpone(ctx)
	}
	return nil
}

// transient reports whether a write that failed has certainly changed nothing and may be
// tried again: when there is room, when blobs can be reached, or by the server that has
// the right to.
func transient(err error) bool {
	return errors.Is(err, dormouse.ErrFull) || errors.Is(err, history.ErrNotSpilled) || errors.Is(err, store.ErrStaleSender)
}

// retryDelay is how long a step waits for room on the disk.
const retryDelay = 250 * time.Millisecond

// later runs f in the actor's goroutine after a while, and has it reconcile again.
func (a *Actor) later(ctx context.Context, f func(ctx context.Context) error) {
	a.after(ctx, retryDelay, f)
}

func (a *Actor) after(ctx context.Context, wait time.Duration, f func(ctx context.Context) error) {
	a.running.Go(func() {
		if sleep.For(ctx, wait) == nil {
			a.report(f)
		}
	})
}

// postpone has the actor reconcile again after a while. However many steps could
// not be done, it does so once.
func (a *Actor) postpone(ctx context.Context) { a.postponeFor(ctx, retryDelay) }

func (a *Actor) postponeFor(ctx context.Context, wait time.Duration) {
	if a.postponed {
		return
	}
	a.postponed = true
	a.after(ctx, wait, func(context.Context) error {
		a.postponed = false
		return nil
	})
}

// report runs f in the actor's goroutine, unless the actor is leaving.
func (a *Actor) report(f func(ctx context.Context) error) {
	m := message{act: f, reply: make(chan error, 1)}
	select {
	case a.inbox <- m:
		<-m.reply
	case <-a.quit:
	}
}

// take starts a turn on a prompt, with its body from the log.
func (a *Actor) take(ctx context.Context, w law.WantedTake) error {
	crash.At(crash.TurnNext)
	e, ok := a.recentBodies[w.Prompt.ID]
	delete(a.recentBodies, w.Prompt.ID)
	if !ok {
		var err error
		e, err = a.log.Event(ctx, a.id, w.Prompt.Seq)
		switch {
		case errors.Is(err, history.ErrNoBody):
			a.logger.ErrorContext(ctx, "prompt unreadable", "prompt", w.Prompt.ID, "error", err)
			return a.commitOwn(ctx, law.Cancel{Prompt: w.Prompt.ID, Reason: "its stored body cannot be read"})
		case err != nil:
			return err
		}
	}
	body := law.Payload[dormouse.PromptBody](e)
	v := law.Take{Thread: w.Thread, Prompt: w.Prompt.ID, Content: body.Content, System: body.System}
	m := message{by: e.Actor, verb: v, reply: make(chan error, 1)}
	if err := a.commit(ctx, m); err != nil {
		return err
	}
	if err := <-m.reply; err != nil {
		a.postpone(ctx)
	}
	return nil
}

// errAttemptOver ends the context of an attempt that is no longer wanted.
var errAttemptOver = errors.New("attempt is over")

// attempt is a running attempt.
type attempt struct {
	law.Work
	stop context.CancelCauseFunc
}

func (a *Actor) startAttempt(ctx context.Context, w law.WantedAttempt) {
	ctx, stop := context.WithCancelCause(ctx)
	a.attempts[w.Turn] = &attempt{Work: w.Work, stop: stop}
	j := &journal{a: a, thread: w.Thread, work: w.Work}
	a.running.Go(func() {
		err := a.deps.Agent.Run(ctx, j)
		stop(errAttemptOver)
		a.report(func(ctx context.Context) error { return a.attemptOver(ctx, w.Work, err) })
	})
}

// isCurrent reports whether w is the attempt that runs now.
func (a *Actor) isCurrent(w law.Work) bool {
	t := a.state.TurnOf(w.Turn)
	return t != nil && t.Turn.Epoch == a.epoch && t.Turn.Attempt == w.Attempt
}

// attemptOver records why an attempt ended, if the turn has not. On a full disk
// the record waits, and the attempt is not started over meanwhile.
func (a *Actor) attemptOver(ctx context.Context, w law.Work, err error) error {
	if !a.isCurrent(w) || ctx.Err() != nil || errors.Is(err, errAttemptOver) {
		delete(a.attempts, w.Turn) // a turn that was blocked and goes on has the same attempt, begun anew
		return err
	}
	switch {
	case a.checkDamage(ctx, err): // the attempt is not counted: it begins anew if the log can be read again
		return err
	case errors.Is(err, runner.ErrStale) || errors.Is(err, dormouse.ErrLeaseLost):
		a.broken = err // a newer epoch has been seen, or may have been: our state is old
		return err
	case errors.Is(err, runner.ErrUnreachable):
		a.sandbox.release(err) // attaching anew finds out whether it still lives
	}
	f, ok := errors.AsType[*agent.Failure](err)
	if !ok {
		if err == nil {
			err = errors.New("the agent stopped without ending its turn")
		}
		f = &agent.Failure{Type: "unknown_error", After: time.Second, Err: err}
	}
	a.logger.WarnContext(ctx, "attempt failed", "turn", w.Turn, "attempt", w.Attempt, "error", err)
	failed := a.do(ctx, law.FailAttempt{
		Work: w, Error: f.Type, Message: f.Error(), Retry: !f.Final, Until: law.Stamp(a.deps.Clock().Add(f.After)),
	})
	if transient(failed) {
		a.later(ctx, func(ctx context.Context) error { return a.attemptOver(ctx, w, err) })
		return nil
	}
	delete(a.attempts, w.Turn)
	return failed
}

// reconcileKills ends what a sandbox still does for turns that are over.
func (a *Actor) reconcileKills(w law.Wanted) {
	if a.sandbox.live == nil || w.Sandbox.Phase != law.SandboxActive {
		return
	}
	for _, id := range w.Kill {
		op, open := a.state.Op(id)
		if !open || a.kills[id] || a.attempts[op.Origin.Turn] != nil || op.Generation != a.sandbox.generation {
			continue
		}
		a.kills[id] = true
		ctx, live := a.sandbox.ctx, a.sandbox.live
		a.running.Go(func() {
			outcome, err := endOp(ctx, live, id)
			recorded := false
			a.report(func(ctx context.Context) error {
				if err == nil {
					err = a.do(ctx, law.FinishOp{Op: id, Outcome: outcome})
				}
				if recorded = err == nil; recorded {
					delete(a.kills, id)
					return nil
				}
				// The sandbox is gone or going, which is recorded there, or the
				// record has to wait. What failed at once must not spin.
				a.later(ctx, func(context.Context) error {
					delete(a.kills, id)
					return nil
				})
				return err
			})
			if recorded { // before that, a server that asks again must not hear that the op was never seen
				live.Forget(id)
			}
		})
	}
}

// endOp kills an op and says how it ended.
func endOp(ctx context.Context, live sandbox.Sandbox, id dormouse.OpID) (string, error) {
	crash.At(crash.OpKilling)
	if err := live.Kill(ctx, id); err != nil {
		return "", err
	}
	r, err := live.Wait(ctx, id, nil)
	switch {
	case errors.Is(err, runner.ErrNeverSeen):
		return "never_started", nil
	case err != nil:
		return "", err
	case r.Killed:
		return dormouse.OutcomeInterrupted, nil
	}
	return dormouse.OutcomeOK, nil
}
