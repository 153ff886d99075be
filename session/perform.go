package session

import (
	"context"
	"errors"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

// reconcileExecs has the commands of people and programs run, and ended.
func (a *Actor) reconcileExecs(ctx context.Context, w law.Wanted) error {
	if a.box.live == nil || w.Sandbox.Phase != law.SandboxActive || a.box.generation != w.Sandbox.Generation {
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
		return a.own(ctx, law.EndExec{Exec: x.ID})
	}
	if err != nil {
		return err
	}
	return a.own(ctx, law.StartExec{Exec: x.ID, Args: dormouse.DigestOf(dormouse.Encode(law.Payload[dormouse.ExecAsk](e)))})
}

// runExec sends a command to the runner, or finds it there, and records how it
// ended.
func (a *Actor) runExec(x law.Exec) {
	ctx, cancel := context.WithCancel(a.box.ctx)
	live, generation := a.box.live, a.box.generation
	a.execs[x.ID] = cancel
	asked, known := a.fresh[x.ID]
	delete(a.fresh, x.ID)
	a.running.Go(func() {
		defer cancel()
		answer, err := a.perform(ctx, live, x, asked, known)
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
				return a.boxFailed(ctx, generation, died(live))
			case errors.Is(err, runner.ErrStale):
				a.broken = err
			case errors.Is(err, runner.ErrUnreachable):
				a.box.close(err) // attaching anew finds out whether it still lives
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

// perform carries out one command.
func (a *Actor) perform(ctx context.Context, live sandbox.Sandbox, x law.Exec, asked dormouse.Event, known bool) (dormouse.ExecAnswer, error) {
	out := func(b []byte) { a.feeds.Show(a.id, feed.Delta{Use: x.ID, Text: dormouse.CleanText(string(b))}) }
	if !known {
		var err error
		asked, err = a.log.Event(ctx, a.id, x.Seq)
		if errors.Is(err, history.ErrNoBody) {
			a.slog.ErrorContext(ctx, "command unreadable", "exec", x.ID, "op", x.Op, "error", err)
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
	return answered(x, r), nil
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
	return answered(x, r), nil
}

// answered is the answer to a command that has ended.
func answered(x law.Exec, r runner.Result) dormouse.ExecAnswer {
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
	ctx, live := a.box.ctx, a.box.live
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

// Exec runs a command in a session's sandbox and returns how it ended. What it
// prints goes to out as it comes; some of that may be missing, the answer has
// it. If ctx ends first, the command runs on. One without an id is given a new
// one, and is known to be new.
func (s *Sessions) Exec(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask dormouse.ExecAsk, out func(text string)) (dormouse.ExecAnswer, error) {
	drawn := ask.Exec == ""
	if drawn {
		ask.Exec = dormouse.EventID(NewID(dormouse.EventPrefix))
	}
	from, again, err := s.askedAt(ctx, id, ask, drawn)
	if err != nil {
		return dormouse.ExecAnswer{}, err
	}
	f, err := s.followFrom(ctx, id, from)
	if err != nil {
		return dormouse.ExecAnswer{}, err
	}
	defer func() { f.Close() }()
	if !again {
		if err := s.Do(ctx, id, by, law.Run{ExecAsk: ask, New: drawn}); err != nil {
			return dormouse.ExecAnswer{}, err
		}
	}
	for {
		items, err := f.Next(ctx)
		if errors.Is(err, dormouse.ErrBehind) { // it prints faster than anybody reads; the log has its end
			next, err := s.Follow(ctx, id, f.Cursor())
			if err != nil {
				return dormouse.ExecAnswer{}, err
			}
			f.Close()
			f = next
			continue
		}
		if err != nil {
			return dormouse.ExecAnswer{}, err
		}
		for _, i := range items {
			if i.Delta != nil {
				if i.Delta.Use == ask.Exec && out != nil {
					out(i.Delta.Text)
				}
				continue
			}
			if a, ok := answerTo(i.Event, ask.Exec); ok {
				return a, nil
			}
		}
	}
}

// askedAt is the seq after which a command's answer comes, and reports whether it was
// asked for before. Another command under the same id is refused.
func (s *Sessions) askedAt(ctx context.Context, id dormouse.SessionID, ask dormouse.ExecAsk, drawn bool) (seq uint64, again bool, err error) {
	if !s.believes(ctx, id, func(state law.State) { seq = state.Seq }) {
		row, err := s.Row(ctx, id)
		if err != nil {
			return 0, false, err
		}
		seq = row.Seq
	}
	if drawn {
		return seq, false, nil
	}
	e, err := s.Given(ctx, id, string(ask.Exec))
	switch {
	case errors.Is(err, dormouse.ErrNotFound):
		return seq, false, nil
	case err == nil && !law.SameExec(e, ask):
		err = law.OtherRequest(string(ask.Exec))
	}
	return e.Seq, true, err
}

// believes shows what a session's actor believes, if there is one here, without a look
// at the store.
func (s *Sessions) believes(ctx context.Context, id dormouse.SessionID, see func(law.State)) bool {
	a := s.loadedActor(id)
	return a != nil && a.See(ctx, see) == nil
}

// answerTo reads the answer to a command, if e is that.
func answerTo(e dormouse.Event, id dormouse.EventID) (dormouse.ExecAnswer, bool) {
	if e.Type != dormouse.ExecAnswered && e.Type != dormouse.ExecRefused {
		return dormouse.ExecAnswer{}, false
	}
	a := law.Payload[dormouse.ExecAnswer](e)
	return a, a.Exec == id
}
