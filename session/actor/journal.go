package actor

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// journal is what one attempt sees of its session.
type journal struct {
	a      *Actor
	thread dormouse.ThreadID
	work   law.Work
}

var _ agent.Journal = (*journal)(nil)

// send sends a step of the attempt to the actor. The caller acts on the answer, so the
// lease is checked here: a server that was paused in between sends nothing more.
func (j *journal) send(ctx context.Context, m message) error {
	if err := j.a.send(ctx, m); err != nil {
		return err
	}
	return j.a.lease.Holds()
}

// ask runs f in the actor's goroutine, as long as the attempt is current.
func (j *journal) ask(ctx context.Context, f func(ctx context.Context, t *law.Turn) error) error {
	return j.send(ctx, message{act: func(ctx context.Context) error {
		if !j.a.isCurrent(j.work) || ctx.Err() != nil {
			return errAttemptOver
		}
		return f(ctx, j.a.state.TurnOf(j.work.Turn).Turn)
	}})
}

// record commits a verb. It waits while the disk is full or blobs cannot be reached:
// nothing is lost and no attempt is used up, the turn only stands still.
func (j *journal) record(ctx context.Context, v law.Verb) error {
	return retryWrite(ctx, func() error { return j.send(ctx, message{by: dormouse.ActorAgent, verb: v}) })
}

func retryWrite(ctx context.Context, write func() error) error {
	for {
		err := write()
		if !transient(err) {
			return err
		}
		if err := sleep.For(ctx, retryDelay); err != nil {
			return err
		}
	}
}

// View implements agent.Journal.
func (j *journal) View(ctx context.Context) (agent.View, error) {
	var v agent.View
	err := j.ask(ctx, func(ctx context.Context, t *law.Turn) error {
		config, err := j.a.agentConfig(ctx, t.Config)
		if err != nil {
			return err
		}
		v = agent.View{
			Session: j.a.id, Thread: j.thread, Shell: j.a.state.ShellOf(j.thread), Turn: j.work.Turn, Attempt: j.work.Attempt, Agent: *config,
			Calls: t.Calls, Said: t.Stop != "", Uses: t.Uses,
		}
		if t.Redo != nil {
			v.Retry, v.RetryTry = t.Redo.Op, t.Redo.Try
		}
		if j.a.sandbox.live != nil && j.a.state.Sandbox.Phase == law.SandboxActive {
			v.Generation = j.a.sandbox.generation
		}
		for _, op := range j.a.state.Ops {
			if op.Origin.Turn == j.work.Turn {
				v.Ops = append(v.Ops, op.Op)
			}
		}
		return nil
	})
	return v, err
}

// agentConfig reads what a turn runs with, once.
func (a *Actor) agentConfig(ctx context.Context, at uint64) (*dormouse.AgentConfig, error) {
	if a.config == nil || a.configAt != at {
		config, err := a.log.AgentConfig(ctx, a.id, at)
		if err != nil {
			return nil, err
		}
		a.config, a.configAt = &config, at
	}
	return a.config, nil
}

// Seen implements agent.Journal.
func (j *journal) Seen(ctx context.Context, op dormouse.OpID) (string, error) {
	return j.a.log.SeenText(ctx, j.a.id, op)
}

// Start implements agent.Journal.
func (j *journal) Start(ctx context.Context, op dormouse.Op) error {
	for {
		err := j.record(ctx, law.StartOp{Work: j.work, Op: op})
		if !errors.Is(err, law.ErrSnapshotDue) {
			return err
		}
		if err := j.awaitSnapshot(ctx); err != nil {
			return err
		}
	}
}

// awaitSnapshot waits until no tool call is without its snapshot.
func (j *journal) awaitSnapshot(ctx context.Context) error {
	made := make(chan struct{})
	err := j.ask(ctx, func(context.Context, *law.Turn) error {
		if !law.CallSnapshotDue(j.a.state) {
			close(made)
			return nil
		}
		j.a.snapshotTaken = append(j.a.snapshotTaken, made)
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case <-made:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Finish implements agent.Journal.
func (j *journal) Finish(ctx context.Context, f agent.Finish, next *dormouse.Op) (begun bool, err error) {
	verbs := []law.Verb{law.FinishOp{
		Work: j.work, Op: f.Op, Outcome: f.Outcome, Usage: f.Usage, CostMicros: f.Cost, Estimated: f.Estimated,
		Events: f.Events, Uses: f.Uses, Partial: f.Partial, Stop: f.Stop,
	}}
	if next != nil {
		verbs = append(verbs, law.StartOp{Work: j.work, Op: *next})
	}
	err = retryWrite(ctx, func() error {
		return j.send(ctx, message{act: func(ctx context.Context) error {
			batch := make([]message, len(verbs))
			for i, v := range verbs {
				batch[i] = message{by: dormouse.ActorAgent, verb: v, reply: make(chan error, 1)}
			}
			if err := j.a.commit(ctx, batch...); err != nil {
				return err
			}
			if err := <-batch[0].reply; err != nil {
				return err
			}
			j.a.usageSoFar.Delete(f.Op)
			begun = next != nil && <-batch[1].reply == nil // if it was refused, the next step decides again
			return nil
		}})
	})
	return begun, err
}

// Block implements agent.Journal.
func (j *journal) Block(ctx context.Context) error { return j.record(ctx, law.Block{Work: j.work}) }

// End implements agent.Journal. What the turn has written is durable before it has ended.
func (j *journal) End(ctx context.Context) error {
	if err := j.syncFiles(ctx); err != nil {
		return err
	}
	return retryWrite(ctx, func() error {
		return j.send(ctx, message{act: func(ctx context.Context) error {
			j.a.checkLiveAhead(ctx)
			return j.a.doAs(ctx, dormouse.ActorAgent, law.EndTurn{Work: j.work})
		}})
	})
}

// Chunk implements agent.Journal.
func (j *journal) Chunk(ctx context.Context, op dormouse.OpID, at int, text string, first int) error {
	return j.ask(ctx, func(ctx context.Context, _ *law.Turn) error {
		open, ok := j.a.state.Op(op)
		if !ok {
			return errAttemptOver
		}
		b := store.Batch{Session: j.a.id, Epoch: j.a.epoch, After: j.a.state.Seq, Chunks: []store.Chunk{{Op: op, N: at, Text: text}}}
		if err := j.a.appendBatch(b); err != nil {
			if !errors.Is(err, dormouse.ErrFull) {
				j.a.broken = err
			}
			return err
		}
		j.a.feeds.Show(j.a.id, dormouse.Delta{Thread: j.thread, Op: open.ID, Text: text, At: at, First: first})
		return nil
	})
}

// Counted implements agent.Journal.
func (j *journal) Counted(op dormouse.OpID, u dormouse.ModelUsage) { j.a.usageSoFar.Store(op, u) }

// Show implements agent.Journal.
func (j *journal) Show(use dormouse.EventID, output []byte) {
	j.a.feeds.Show(j.a.id, dormouse.Delta{Thread: j.thread, Use: use, Text: dormouse.CleanText(string(output))})
}

// Sandbox implements agent.Journal.
func (j *journal) Sandbox(ctx context.Context) (sandbox.Sandbox, uint64, error) {
	reply := make(chan sandboxReply, 1)
	err := j.ask(ctx, func(context.Context, *law.Turn) error {
		j.a.waiters = append(j.a.waiters, waiter{j.work, reply})
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	select {
	case r := <-reply:
		return r.live, r.generation, r.err
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
}

// Gone implements agent.Journal.
func (j *journal) Gone(ctx context.Context, generation uint64) error {
	return retryWrite(ctx, func() error {
		return j.ask(ctx, func(ctx context.Context, _ *law.Turn) error {
			return j.a.sandboxFailed(ctx, generation, causeOfDeath(j.a.sandbox.live)) // if it is not that one, it is known
		})
	})
}
