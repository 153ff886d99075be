// Package agent works on one turn: it asks the model, runs the tools it calls,
// and asks again, until the model has said its last word.
//
// It keeps nothing of its own. Every step is decided from what the session has
// recorded, and every side effect is an op: recorded before it starts and after
// it ends. A turn taken up after a crash is therefore the same loop from the
// top, and an op found open gets the verdict of its kind.
package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/sandbox"
)

// maxCalls bounds the model calls of one turn.
const maxCalls = 1000

// Journal is what a turn needs of its session. Every method that records
// returns once the record is durable, and fails once the attempt is over.
type Journal interface {
	// View returns where the turn stands now.
	View(ctx context.Context) (View, error)
	// History returns the thread's events after a seq.
	History(ctx context.Context, after uint64) ([]Talk, error)
	// Seen returns the text already seen of an open model call.
	Seen(ctx context.Context, op dormouse.OpID) (string, error)
	// Start records that an op begins.
	Start(ctx context.Context, op dormouse.Op) error
	// Chunk records a fragment of an open model call, which begins at that byte of
	// the reply, then shows it to followers. first is how much of it is of the reply's
	// first block. It fails with dormouse.ErrFull when there is no room for it now.
	Chunk(ctx context.Context, op dormouse.OpID, at int, text string, first int) error

	// Counted notes what the provider has counted of an open model call so far, for whoever
	// has to end it.
	Counted(op dormouse.OpID, u dormouse.ModelUsage)
	// Show shows followers what a running tool prints; nothing is recorded.
	Show(use dormouse.EventID, output []byte)
	// Finish records how an op ended and what it brought, and in the same commit
	// that the next one begins, if there is one and it still can.
	Finish(ctx context.Context, f Finish, next *dormouse.Op) (begun bool, err error)
	// Settle records what a wish changes in the session itself, and the result of
	// the tool call with it, in one commit.
	Settle(ctx context.Context, use dormouse.Use, w tool.Wish) error
	// Reach does what a wish asks of another session, under an op that is recorded
	// as open. Reaching twice under the same op must act once.
	Reach(ctx context.Context, op dormouse.Op, w tool.Wish) (text string, failed bool, err error)
	// Block records that only people can move the turn.
	Block(ctx context.Context) error
	// End records that the turn is done.
	End(ctx context.Context) error
	// Sandbox returns the session's sandbox and its generation, warming one first
	// if there is none.
	Sandbox(ctx context.Context) (sandbox.Sandbox, uint64, error)
	// Gone reports that the sandbox of a generation is dead.
	Gone(ctx context.Context, generation uint64) error
}

// View is where a turn stands.
type View struct {
	Session dormouse.SessionID
	Thread  dormouse.ThreadID
	// Shell is the name of the thread's shell in the sandbox.
	Shell   dormouse.ThreadID
	Turn    dormouse.TurnID
	Attempt int
	Agent   dormouse.AgentConfig
	// Calls counts the model calls asked for so far.
	Calls int
	// Retry is the model call that the next one retries, and its try.
	Retry    dormouse.OpID
	RetryTry int
	// Said is true once the agent has said its last word.
	Said bool
	// Generation is that of the sandbox at hand; 0 if none is.
	Generation uint64
	// Uses are the tool calls without a result, Ops the open ops.
	Uses []dormouse.Use
	Ops  []dormouse.Op
}

// Finish is how an op ended.
type Finish struct {
	Op      dormouse.OpID
	Outcome string
	Usage   dormouse.ModelUsage
	Cost    int64 // in millionths of a dollar
	// Estimated says that usage and cost are.
	Estimated bool
	Events    []dormouse.Event
	Uses      []dormouse.Use
	Partial   dormouse.EventID
	Stop      string
}

// Failure is an error that ends an attempt. Unless it is Final, another attempt
// may succeed, not before After has passed.
type Failure struct {
	Type  string
	Final bool
	After time.Duration
	Err   error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Agent runs turns.
type Agent struct {
	models Models
	tools  *tool.Set
}

// Models finds the model an agent is configured with.
type Models interface {
	Model(name string) (model.Model, error)
}

// Priced is implemented by Models that know what calls cost.
type Priced interface {
	Price(name string) model.Price
}

// New returns an agent that can use these models and tools.
func New(models Models, tools *tool.Set) *Agent { return &Agent{models: models, tools: tools} }

// Run takes a turn up where it stands and returns nil when the turn has ended
// or is blocked. A *Failure says why the attempt cannot go on; any other error
// means that the attempt is over already.
func (a *Agent) Run(ctx context.Context, j Journal) error {
	t := &turn{Agent: a, j: j}
	crash.At(crash.TurnFirstOp)
	for conflicts := 0; ; {
		more, err := t.step(ctx)
		switch {
		case err == nil && !more:
			return nil
		case err == nil:
			conflicts = 0
		case errors.Is(err, dormouse.ErrConflict) && conflicts < maxConflicts:
			conflicts++ // the record moved between looking and writing: look again
		default:
			return err
		}
		crash.At(crash.TurnBetween)
	}
}

// maxConflicts bounds how often in a row a step may find the record moved.
const maxConflicts = 5

// turn is one attempt at a turn: the conversation as far as it was read.
type turn struct {
	size int64 // about how many tokens the last request had
	*Agent
	j      Journal
	view   View
	events []Talk
	// next is an op that was recorded together with the end of the one before it
	// and is not sent yet.
	next dormouse.OpID
}

// step does the next thing the record asks for.
func (t *turn) step(ctx context.Context) (more bool, err error) {
	if t.view, err = t.j.View(ctx); err != nil {
		return false, err
	}
	if err := t.read(ctx); err != nil {
		return false, err
	}
	if op, open := t.openModelCall(); open {
		return true, t.takeUpModelCall(ctx, op)
	}
	waiting := false
	for _, use := range t.view.Uses {
		if use.Gate == dormouse.GateNone {
			return true, t.perform(ctx, use)
		}
		waiting = true
	}
	switch {
	case waiting:
		crash.At(crash.TurnBlocking)
		return true, t.j.Block(ctx) // if people just answered, there is more to do
	case t.view.Said:
		crash.At(crash.TurnEnding)
		return false, t.j.End(ctx)
	case t.view.Calls >= maxCalls:
		return false, &Failure{
			Type: "tool_use_limit_reached_error", Final: true,
			Err: fmt.Errorf("the turn made %d model calls without coming to an end", t.view.Calls),
		}
	}
	return true, t.ask(ctx)
}

// read brings the conversation up to date.
func (t *turn) read(ctx context.Context) error {
	var after uint64
	if n := len(t.events); n > 0 {
		after = t.events[n-1].Seq
	}
	events, err := t.j.History(ctx, after)
	if err != nil {
		return err
	}
	t.events = append(t.events, events...)
	return nil
}
