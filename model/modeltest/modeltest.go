// Package modeltest holds the promises of package model as a suite that every
// provider passes.
package modeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/model"
)

// Subject is a model under test and the requests that bring out its behaviour.
type Subject struct {
	Model model.Model
	// Text is a request that is answered with text.
	Text model.Request
	// Tools is a request that is answered with tool uses.
	Tools model.Request
	// Hangs is a request that is not answered at all; nil when the model has no
	// way to keep anyone waiting.
	Hangs *model.Request
	// Fails is a request that fails and would succeed on a second try; nil when
	// the model cannot fail.
	Fails *model.Request
	// Sent counts the requests that left for the provider; nil when none do.
	Sent func() int
}

// Check refuses a transcript that a provider would refuse.
func Check(messages []model.Message) error { return model.ValidateTranscript(messages) }

// patience bounds what must return promptly.
const patience = 10 * time.Second

// Run asserts that the model that open makes keeps the promises of the port.
// Each promise gets a fresh one.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Run("it must call delta for every fragment of text in order", func(t *testing.T) {
		s := open(t)
		last := 0
		reply := s.reply(t, s.Text, func(d model.Delta) error {
			if d.Index < last {
				t.Errorf("fragment of block %d after one of block %d", d.Index, last)
			}
			if d.Text == "" {
				t.Errorf("fragment of block %d is empty", d.Index)
			}
			last = d.Index
			return nil
		})
		if last >= len(reply.Content) {
			t.Errorf("fragment of block %d, the reply has %d blocks", last, len(reply.Content))
		}
	})
	t.Run("it must call delta from one goroutine", func(t *testing.T) {
		s := open(t)
		callers := make(map[string]bool)
		s.reply(t, s.Text, func(model.Delta) error {
			callers[goroutine()] = true
			return nil
		})
		if len(callers) > 1 {
			t.Errorf("delta was called from %d goroutines", len(callers))
		}
	})
	t.Run("the fragments of a block must add up to its text", func(t *testing.T) {
		for _, r := range []func(Subject) model.Request{
			func(s Subject) model.Request { return s.Text },
			func(s Subject) model.Request { return s.Tools },
		} {
			s := open(t)
			var got Fragments
			reply := s.reply(t, r(s), got.Add)
			if err := got.Match(reply); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("an error from delta must end the call", func(t *testing.T) {
		s := open(t)
		stop := errors.New("enough")
		calls := 0
		_, err := s.Model.Reply(t.Context(), s.Text, func(model.Delta) error {
			calls++
			return stop
		})
		if calls > 1 {
			t.Errorf("delta was called %d times, the first refused", calls)
		}
		if calls == 1 && !errors.Is(err, stop) {
			t.Errorf("error is %v, want it to wrap delta's", err)
		}
	})
	t.Run("it must return when ctx ends", func(t *testing.T) { returnsWhenContextEnds(t, open) })
	t.Run("it must never send a request twice by itself", func(t *testing.T) {
		s := open(t)
		if s.Sent == nil {
			return
		}
		s.reply(t, s.Text, func(model.Delta) error { return nil })
		if n := s.Sent(); n != 1 {
			t.Errorf("%d requests were sent for one call", n)
		}
		if s.Fails == nil {
			return
		}
		if _, err := s.Model.Reply(t.Context(), *s.Fails, func(model.Delta) error { return nil }); err == nil {
			t.Error("the call succeeded, so something tried it again")
		}
		if n := s.Sent(); n != 2 {
			t.Errorf("%d requests were sent for two calls", n)
		}
	})
	t.Run("an error must be, or wrap, an *Error", func(t *testing.T) {
		s := open(t)
		invalid := s.Text
		invalid.Messages = nil
		_, err := s.Model.Reply(t.Context(), invalid, func(model.Delta) error { return nil })
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Retryable() {
			t.Errorf("an empty transcript gives %v, want an *Error that is not worth another try", err)
		}
		if s.Fails == nil {
			return
		}
		_, err = s.Model.Reply(t.Context(), *s.Fails, func(model.Delta) error { return nil })
		if _, ok := errors.AsType[*model.Error](err); !ok {
			t.Errorf("a failed call gives %v, want an *Error", err)
		}
	})
	t.Run("content holds text and tool_use parts, none empty", func(t *testing.T) {
		s := open(t)
		text := s.reply(t, s.Text, func(model.Delta) error { return nil })
		checkContent(t, s.Text, text)
		uses := s.reply(t, s.Tools, func(model.Delta) error { return nil })
		checkContent(t, s.Tools, uses)
		if uses.StopReason != model.StopToolUse {
			t.Errorf("stop reason is %q, want %q", uses.StopReason, model.StopToolUse)
		}
	})
	t.Run("a second request with the same Request.Op is answered from the first", func(t *testing.T) {
		s := open(t)
		if k, ok := s.Model.(model.Keyed); !ok || !k.Keyed() {
			return
		}
		r := s.Tools
		r.Op = "op_again"
		first := s.reply(t, r, func(model.Delta) error { return nil })
		var got Fragments
		second := s.reply(t, r, got.Add)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("second reply differs (-first +second):\n%s", diff)
		}
		if err := got.Match(second); err != nil {
			t.Error(err)
		}
	})
}

func returnsWhenContextEnds(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	call := func(s Subject, ctx context.Context, r model.Request, delta func(model.Delta) error) {
		t.Helper()
		done := make(chan error, 1)
		go func() {
			_, err := s.Model.Reply(ctx, r, delta)
			done <- err
		}()
		select {
		case err := <-done:
			if _, ok := errors.AsType[*model.Error](err); !ok || !errors.Is(err, context.Canceled) {
				t.Errorf("error is %v, want an *Error that wraps the context's", err)
			}
		case <-time.After(patience):
			t.Error("the call did not return")
		}
	}
	s := open(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	call(s, ended, s.Text, func(model.Delta) error { return nil })
	if s.Hangs != nil {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(50*time.Millisecond, cancel)
		call(open(t), ctx, *s.Hangs, func(model.Delta) error { return nil })
	}
}

func (s Subject) reply(t *testing.T, r model.Request, delta func(model.Delta) error) model.Reply {
	t.Helper()
	reply, err := s.Model.Reply(t.Context(), r, delta)
	if err != nil {
		t.Fatalf("reply: %v", err)
	}
	return reply
}

// checkContent holds a reply against what the next request would need of it.
func checkContent(t *testing.T, r model.Request, reply model.Reply) {
	t.Helper()
	if len(reply.Content) == 0 {
		t.Fatal("the reply is empty")
	}
	next := Answered(r.Messages, reply, "ok")
	last := &next[len(next)-1]
	last.Content = append(last.Content, model.Part{Type: model.PartText, Text: "and now?"})
	if err := Check(next); err != nil {
		t.Errorf("the reply does not fit into a transcript: %v", err)
	}
	if reply.StopReason == "" {
		t.Error("the reply has no stop reason")
	}
}

// Fragments collects deltas by block.
type Fragments struct{ blocks map[int]*strings.Builder }

// Add is a delta function.
func (f *Fragments) Add(d model.Delta) error {
	if f.blocks == nil {
		f.blocks = make(map[int]*strings.Builder)
	}
	if f.blocks[d.Index] == nil {
		f.blocks[d.Index] = new(strings.Builder)
	}
	f.blocks[d.Index].WriteString(d.Text)
	return nil
}

// Match reports fragments that do not add up to the text of their block. A
// reply that did not stream has none.
func (f *Fragments) Match(r model.Reply) error {
	for i, b := range f.blocks {
		if i >= len(r.Content) || r.Content[i].Type != model.PartText {
			return errors.New("fragments of a block that is not a text of the reply: " + b.String())
		}
	}
	if f.blocks == nil {
		return nil
	}
	for i, p := range r.Content {
		if p.Type != model.PartText {
			continue
		}
		got := ""
		if b := f.blocks[i]; b != nil {
			got = b.String()
		}
		if got != p.Text {
			return errors.New("fragments and text differ: " + cmp.Diff(p.Text, got))
		}
	}
	return nil
}

// User is a transcript of one prompt.
func User(text string) []model.Message {
	return []model.Message{{Role: model.RoleUser, Content: []model.Part{{Type: model.PartText, Text: text}}}}
}

// Answered extends a transcript by a reply and a result for each of its tool uses.
func Answered(messages []model.Message, reply model.Reply, result string) []model.Message {
	out := append([]model.Message{}, messages...)
	out = append(out, model.Message{Role: model.RoleAssistant, Content: reply.Content})
	var results []model.Part
	for _, p := range reply.Content {
		if p.Type == model.PartToolUse {
			results = append(results, model.Part{Type: model.PartToolResult, Use: p.ID, Result: []model.Part{{Type: model.PartText, Text: result}}})
		}
	}
	return append(out, model.Message{Role: model.RoleUser, Content: results})
}

// Bash is a tool definition for requests that need one.
func Bash() model.Tool {
	return model.Tool{
		Name:        "bash",
		Description: "Runs a command.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`),
	}
}

// goroutine names the goroutine it is called from.
func goroutine() string {
	buf := make([]byte, 64)
	head, _, _ := bytes.Cut(buf[:runtime.Stack(buf, false)], []byte(" ["))
	return string(head)
}
