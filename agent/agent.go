// Package agent executes one turn: it calls the model, runs the tools that the model
// calls, and calls the model again, until a reply calls no tool.
//
// It has no state of its own. Every step is decided from what the session has
// recorded, and every side effect is an op: recorded before it starts and after it
// ends. Resuming a turn after a crash is therefore the same loop from the top, and an
// op that is still open gets the verdict of its kind.
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
	History(ctx context.Context, after uint64) ([]Entry, error)
	// Seen returns the text of an open model call that followers have already seen.
	Seen(ctx context.Context, op dormouse.OpID) (string, error)
	// Start records that an op begins.
	Start(ctx context.Context, op dormouse.Op) error
	// Chunk records a fragment of an open model call, then sends it to followers. at is
	// the fragment's offset in the reply, first how many of its bytes belong to the
	// reply's first block. It fails with dormouse.ErrFull while the disk is full.
	Chunk(ctx context.Context, op dormouse.OpID, at int, text string, first int) error

	// Counted keeps the usage that the provider has reported of an open model call so
	// far, in case the call is interrupted.
	Counted(op dormouse.OpID, u dormouse.ModelUsage)
	// Show sends the output of a running tool to followers; nothing is recorded.
	Show(use dormouse.EventID, output []byte)
	// Finish records the outcome and the events of an op, and in the same commit the
	// start of the next op, if there is one and it may still start.
	Finish(ctx context.Context, f Finish, next *dormouse.Op) (begun bool, err error)
	// Apply commits an action that changes the session itself, together with the result
	// of the tool call.
	Apply(ctx context.Context, use dormouse.Use, w tool.Action) error
	// Reach performs an action on another session, under an op that is recorded as open.
	// It must be idempotent by op.
	Reach(ctx context.Context, op dormouse.Op, w tool.Action) (text string, failed bool, err error)
	// Block records that the turn waits for people.
	Block(ctx context.Context) error
	// End records that the turn is done.
	End(ctx context.Context) error
	// Sandbox returns the session's sandbox and its generation. It starts one if there
	// is none.
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
	// Said is true once the last reply called no tool.
	Said bool
	// Generation is that of the running sandbox; 0 if there is none.
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
	// Estimated reports that usage and cost are estimates.
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

// Run continues a turn and returns nil when it has ended or is blocked. A *Failure is
// why the attempt failed; any other error means that the attempt was over already.
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
			conflicts++ // the record changed between reading and writing: read it again
		default:
			return err
		}
		crash.At(crash.TurnBetween)
	}
}

// maxConflicts bounds how many steps in a row may fail with a conflict.
const maxConflicts = 5

// turn is one attempt at a turn, with the transcript as far as it was read.
type turn struct {
	size int64 // about how many tokens the last request had
	*Agent
	j      Journal
	view   View
	events []Entry
	// next is an op that was recorded together with the end of the one before it, and
	// was not sent yet.
	next dormouse.OpID
}

// step does what the record requires next.
func (t *turn) step(ctx context.Context) (more bool, err error) {
	if t.view, err = t.j.View(ctx); err != nil {
		return false, err
	}
	if err := t.read(ctx); err != nil {
		return false, err
	}
	if op, open := t.openModelCall(); open {
		return true, t.resumeModelCall(ctx, op)
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
		return true, t.j.Block(ctx) // an answer may have arrived meanwhile
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

// read appends the new events to the transcript.
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
