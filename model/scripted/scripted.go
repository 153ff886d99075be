// Package scripted is a model that says what the prompt tells it to say. The
// script travels in the prompt and the place in it follows from the transcript,
// so that the same conversation gets the same answers from any process, any
// number of times.
//
// A prompt carries its script as a JSON list:
//
//	do it SCRIPT[{"tool":"bash","input":{"command":"ls"}}, {"text":"done"}]
//
// Each step is one reply. The next step comes when the tool calls of the last
// one are answered. A step may hold:
//
//	thinking          true: the model thinks before it speaks
//	text              what is said
//	tool, input       one tool call, after the text
//	tools             several: [{"name":…, "input":…}, …]
//	stop_reason       instead of the one that follows from the content
//	delay_ms          wait before the first byte
//	chunks            number of fragments of the text
//	chunk_delay_ms    wait between fragments
//	stream            false: a reply without fragments
//	error             fail with this HTTP status; retry_after_ms goes with it
//	cut               break the stream after this many fragments
//	hang              true: no byte until the caller gives up
//	spoil             send a stream that is broken: "truncated", "stalled",
//	                  "malformed", "duplicate", "disordered", "endless" (a line of
//	                  100 MiB), "unfinished" or "uncounted"
//	times             the first so many requests for this step of this prompt meet
//	                  the fault; unless said otherwise an error and a hang are
//	                  for ever, a cut and a spoiled stream happen once
//
// Behind the script the model says "done"; without one it repeats the prompt.
//
// Model answers in this process; Server speaks the Messages API over HTTP and
// keeps count of what it was asked; Client is a model.Model over that wire.
package scripted

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/model"
)

// Options choose how a Model or a Server behaves.
type Options struct {
	// Keyed honours idempotency keys: a second request with the same key is
	// answered from the first, and waits for it when it is still in progress.
	Keyed bool
}

// Model is the script played in this process.
type Model struct{ stage *stage }

// New returns a model with no memory but its counters.
func New(o Options) *Model { return &Model{newStage(o)} }

// Keyed reports whether op ids are honoured as idempotency keys.
func (m *Model) Keyed() bool { return m.stage.keyed }

// Calls returns what has been asked so far.
func (m *Model) Calls() Calls { return m.stage.snapshot() }

// Reply answers r by its script.
func (m *Model) Reply(ctx context.Context, r model.Request, delta func(model.Delta) error) (model.Reply, error) {
	p, end, err := m.stage.begin(ctx, string(r.Op), r, nil)
	if err != nil {
		return model.Reply{}, asError(err)
	}
	err = p.broken().play(ctx, delta)
	end(err == nil)
	if err != nil {
		return model.Reply{}, asError(err)
	}
	return p.reply, nil
}

var errCut = errors.New("the stream broke off")

// play waits, and then sends every fragment.
func (p performance) play(ctx context.Context, delta func(model.Delta) error) error {
	if err := p.wait(ctx); err != nil {
		return err
	}
	for i, f := range p.fragments {
		if i == p.cut {
			return errCut
		}
		if i > 0 {
			if err := sleep.For(ctx, p.pause); err != nil {
				return err
			}
		}
		if err := delta(f); err != nil {
			return fmt.Errorf("take a fragment: %w", err)
		}
	}
	if p.cut >= 0 {
		return errCut
	}
	return nil
}

// wait is the time before the first byte.
func (p performance) wait(ctx context.Context) error {
	if p.hang {
		<-ctx.Done()
	}
	return sleep.For(ctx, p.delay)
}

// fault is a request that the provider answers with an error.
type fault struct {
	status     int
	retryAfter time.Duration
	err        error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

func asError(err error) *model.Error {
	if f, ok := errors.AsType[*fault](err); ok {
		return &model.Error{Kind: model.KindOf(f.status), RetryAfter: f.retryAfter, Err: f.err}
	}
	return model.AsError(err)
}
