package actor

import (
	"context"
	"errors"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

// reconcileExecs has the commands of people and programs run, and ended.
func (a *Actor) reconcileExecs(ctx context.Context, w law.Wanted) error {
	if a.sandbox.live == nil || w.Sandbox.Phase != law.SandboxActive || a.sandbox.generation != w.Sandbox.Generation {
		return nil
	}
	for _, x := range w.Execs {
		if x.Op == "" {
			if err := a.startExec(ctx, x); err != nil {
				return err
			}
			continue // what is wanted has changed
		}
		if a.execs[x.ID] == nil {
			a.runExec(x)
		}
		if x.Ending && !a.kills[x.Op] {
			a.killExec(x.Op)
		}
	}
	return nil
}

// startExec records the op of a command that had to wait for the sandbox.
func (a *Actor) startExec(ctx context.Context, x law.Exec) error {
	e, err := a.log.Event(ctx, a.id, x.Seq)
	if errors.Is(err, history.ErrNoBody) {
		return a.commitOwn(ctx, law.EndExec{Exec: x.ID})
	}
	if err != nil {
		return err
	}
	return a.commitOwn(ctx, law.StartExec{Exec: x.ID, Args: dormouse.DigestOf(dormouse.Encode(law.Payload[dormouse.ExecAsk](e)))})
}

// runExec sends a command to the runner, or finds it there, and records how it
// ended.
func (a *Actor) runExec(x law.Exec) {
	ctx, cancel := context.WithCancel(a.sandbox.ctx)
	live, generation := a.sandbox.live, a.sandbox.generation
	a.execs[x.ID] = cancel
	asked, known := a.recentBodies[x.ID]
	delete(a.recentBodies, x.ID)
	a.running.Go(func() {
		defer cancel()
		answer, err := a.execute(ctx, live, x, asked, known)
		recorded := false
		a.report(func(ctx context.Context) error {
			if err == nil {
				err = a.do(ctx, law.FinishOp{Op: x.Op, Outcome: outcomeOf(answer), Events: []dormouse.Event{{
					ID:   dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(x.Op), "answer")),
					Type: dormouse.ExecAnswered, Payload: dormouse.Encode(answer),
				}}})
			}
			switch recorded = err == nil; {
			case recorded:
				crash.At(crash.OpFinished)
				delete(a.execs, x.ID)
				return nil
			case errors.Is(err, sandbox.ErrGone):
				delete(a.execs, x.ID)
				return a.sandboxFailed(ctx, generation, causeOfDeath(live))
			case errors.Is(err, runner.ErrStale):
				a.broken = err
			case errors.Is(err, runner.ErrUnreachable):
				a.sandbox.release(err) // attaching anew finds out whether it still lives
			}
			a.later(ctx, func(context.Context) error { // what failed at once must not spin
				delete(a.execs, x.ID)
				return nil
			})
			return err
		})
		if recorded {
			live.Forget(x.Op)
			crash.At(crash.OpForgotten)
		}
	})
}

// execute carries out one command.
func (a *Actor) execute(ctx context.Context, live sandbox.Sandbox, x law.Exec, asked dormouse.Event, known bool) (dormouse.ExecAnswer, error) {
	out := func(b []byte) { a.feeds.Show(a.id, dormouse.Delta{Use: x.ID, Text: dormouse.CleanText(string(b))}) }
	if !known {
		var err error
		asked, err = a.log.Event(ctx, a.id, x.Seq)
		if errors.Is(err, history.ErrNoBody) {
			a.logger.ErrorContext(ctx, "command unreadable", "exec", x.ID, "op", x.Op, "error", err)
			return awaitExec(ctx, live, x, out)
		}
		if err != nil {
			return dormouse.ExecAnswer{}, err
		}
	}
	ask := law.Payload[dormouse.ExecAsk](asked)
	started := false
	r, err := live.Run(ctx, runner.Call{Op: x.Op, Kind: dormouse.OpExec, Exec: &runner.Exec{
		Command: ask.Command, Timeout: time.Duration(ask.TimeoutMS) * time.Millisecond, Shell: ask.Shell,
	}}, func() {
		started = true
		crash.At(crash.OpSent)
	}, out)
	if errors.Is(err, dormouse.ErrInvalid) && !started { // the runner will never take it
		return dormouse.ExecAnswer{Exec: x.ID, Exit: -1, Error: err.Error()}, nil
	}
	if err != nil {
		return dormouse.ExecAnswer{}, err
	}
	crash.At(crash.OpResult)
	return answerOf(x, r), nil
}

// awaitExec waits for a command whose text is lost: the runner knows it by its op. One
// that never reached the runner can never begin any more.
func awaitExec(ctx context.Context, live sandbox.Sandbox, x law.Exec, out func([]byte)) (dormouse.ExecAnswer, error) {
	r, err := live.Wait(ctx, x.Op, out)
	switch {
	case errors.Is(err, runner.ErrNeverSeen):
		return dormouse.ExecAnswer{Exec: x.ID, Exit: -1, Error: "its stored text cannot be read, and it had not begun"}, nil
	case err != nil:
		return dormouse.ExecAnswer{}, err
	}
	return answerOf(x, r), nil
}

// answerOf is the answer to a command that has ended.
func answerOf(x law.Exec, r runner.Result) dormouse.ExecAnswer {
	return dormouse.ExecAnswer{
		Exec: x.ID, Exit: r.Exit, Output: r.Output, Omitted: r.Omitted, Error: r.Error, TimedOut: r.TimedOut, Killed: r.Killed,
	}
}

func outcomeOf(a dormouse.ExecAnswer) string {
	switch {
	case a.Killed:
		return dormouse.OutcomeInterrupted
	case a.Error != "" || a.TimedOut:
		return dormouse.OutcomeError
	}
	return dormouse.OutcomeOK
}

// killExec ends what a command does. How it ended is recorded as always.
func (a *Actor) killExec(op dormouse.OpID) {
	a.kills[op] = true
	ctx, live := a.sandbox.ctx, a.sandbox.live
	a.running.Go(func() {
		crash.At(crash.OpKilling)
		err := live.Kill(ctx, op)
		a.report(func(ctx context.Context) error {
			if err != nil { // the next one tries again
				a.later(ctx, func(context.Context) error { delete(a.kills, op); return nil })
			}
			return nil
		})
	})
}
