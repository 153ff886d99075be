package scripted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sse"
	"github.com/dormouse-run/dormouse/model"
)

// readStream reads server-sent events until the reply is whole. What comes
// after that is not read.
func readStream(r io.Reader, delta func(model.Delta) error) (model.Reply, error) {
	events := sse.NewReader(r, maxEvent)
	a := assembly{delta: delta}
	for !a.done {
		frame, err := events.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // a reply says when it is whole
		}
		if err != nil {
			return model.Reply{}, fmt.Errorf("read the stream: %w", err)
		}
		if len(frame.Data) == 0 {
			continue // event names and comments say nothing that data does not
		}
		var e wireEvent
		if err := json.Unmarshal(frame.Data, &e); err != nil {
			return model.Reply{}, fmt.Errorf("read an event: %w", err)
		}
		if err := a.take(e); err != nil {
			return model.Reply{}, err
		}
	}
	return a.reply, nil
}

// readWhole reads a reply that was not streamed, under the same rules.
func readWhole(r io.Reader) (model.Reply, error) {
	var m wireMessage
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return model.Reply{}, fmt.Errorf("read the reply: %w", err)
	}
	a := assembly{delta: func(model.Delta) error { return nil }}
	events := []wireEvent{{Type: "message_start", Message: &m}}
	for i := range m.Content {
		events = append(events,
			wireEvent{Type: "content_block_start", Index: &i, Block: &m.Content[i]},
			wireEvent{Type: "content_block_stop", Index: &i})
	}
	events = append(events,
		wireEvent{Type: "message_delta", Delta: &wireDelta{StopReason: m.StopReason}, Usage: m.Usage},
		wireEvent{Type: "message_stop"})
	for _, e := range events {
		if err := a.take(e); err != nil {
			return model.Reply{}, err
		}
	}
	return a.reply, nil
}

// assembly builds a reply from events and refuses any that come out of order.
type assembly struct {
	delta func(model.Delta) error
	reply model.Reply

	started bool
	ended   bool // message_delta was seen: no more content
	done    bool
	counted bool // the final usage was seen
	next    int  // index of the next block on the wire
	open    *block
	// broken is the id of a last tool call whose input is not whole JSON.
	broken string
}

// block is the one that is being received.
type block struct {
	wirePart
	index int // on the wire
	// held is text that is blank so far: a block of nothing else is dropped, so
	// that later blocks keep the index their fragments are given.
	held  string
	text  strings.Builder
	input bytes.Buffer
}

func outOfOrder(e wireEvent) error { return fmt.Errorf("%s out of order", e.Type) }

func (a *assembly) take(e wireEvent) error {
	switch e.Type {
	case "error":
		return streamError(e)
	case "message_start":
		if a.started || e.Message == nil {
			return outOfOrder(e)
		}
		a.started = true
		a.count(e.Message.Usage)
		return nil
	case "content_block_start", "content_block_delta", "content_block_stop":
		if !a.started || a.ended || e.Index == nil {
			return outOfOrder(e)
		}
		return a.takeBlock(e)
	case "message_delta":
		if !a.started || a.open != nil || e.Delta == nil {
			return outOfOrder(e)
		}
		a.ended = true
		if e.Delta.StopReason != nil {
			a.reply.StopReason = *e.Delta.StopReason
		}
		a.counted = a.counted || e.Usage != nil
		a.count(e.Usage)
		return nil
	case "message_stop":
		if !a.ended {
			return outOfOrder(e)
		}
		return a.finish()
	}
	return nil // pings, and what later versions add
}

func (a *assembly) takeBlock(e wireEvent) error {
	if e.Type == "content_block_start" {
		if a.open != nil || *e.Index != a.next || e.Block == nil || a.broken != "" {
			return outOfOrder(e)
		}
		a.next++
		a.open = &block{wirePart: *e.Block, index: *e.Index}
		a.reply.Thought = a.reply.Thought || e.Block.Type == partThinking
		if e.Block.Type == model.PartText && e.Block.Text != nil {
			return a.say(*e.Block.Text)
		}
		return nil
	}
	if a.open == nil || *e.Index != a.open.index {
		return outOfOrder(e)
	}
	if e.Type == "content_block_stop" {
		return a.closeBlock()
	}
	switch {
	case e.Delta == nil:
		return outOfOrder(e)
	case a.open.Type == model.PartText && e.Delta.Type == "text_delta" && e.Delta.Text != nil:
		return a.say(*e.Delta.Text)
	case a.open.Type == model.PartToolUse && e.Delta.Type == "input_json_delta" && e.Delta.PartialJSON != nil:
		a.open.input.WriteString(*e.Delta.PartialJSON)
		return nil
	case a.open.Type == model.PartText, a.open.Type == model.PartToolUse:
		return fmt.Errorf("%s in a %s block", e.Delta.Type, a.open.Type)
	}
	return nil // thinking, and what later versions add, is not kept
}

// say takes a fragment of the open text.
func (a *assembly) say(s string) error {
	b := a.open
	s = b.held + dormouse.CleanText(s)
	if b.text.Len() == 0 && strings.TrimSpace(s) == "" {
		b.held = s
		return nil
	}
	b.held = ""
	if s == "" {
		return nil
	}
	b.text.WriteString(s)
	if err := a.delta(model.Delta{Index: len(a.reply.Content), Text: s}); err != nil {
		return fmt.Errorf("take a fragment: %w", err)
	}
	return nil
}

func (a *assembly) closeBlock() error {
	b := a.open
	a.open = nil
	switch b.Type {
	case model.PartText:
		if b.text.Len() > 0 {
			a.reply.Content = append(a.reply.Content, model.Part{Type: model.PartText, Text: b.text.String()})
		}
	case model.PartToolUse:
		p := model.Part{Type: model.PartToolUse, ID: b.ID, Name: b.Name, Input: b.Input}
		if b.input.Len() > 0 {
			p.Input = b.input.Bytes()
		}
		if len(p.Input) == 0 {
			p.Input = json.RawMessage("{}")
		}
		if p.ID == "" || p.Name == "" {
			return errors.New("a tool call has no id or no name")
		}
		for _, other := range a.reply.Content {
			if other.ID == p.ID {
				return fmt.Errorf("tool call %q came twice", p.ID)
			}
		}
		if !isObject(p.Input) {
			a.broken = p.ID
		}
		a.reply.Content = append(a.reply.Content, p)
	}
	return nil
}

// finish holds the reply against its own last words.
func (a *assembly) finish() error {
	if !a.counted || a.reply.StopReason == "" {
		return errors.New("the stream ended without final usage or stop reason")
	}
	if a.broken != "" {
		if a.reply.StopReason != model.StopMaxTokens {
			return fmt.Errorf("input of tool call %q is not an object", a.broken)
		}
		// The call ran into the limit of the reply: it was never made.
		a.reply.Content = a.reply.Content[:len(a.reply.Content)-1]
	}
	uses := false
	for _, p := range a.reply.Content {
		uses = uses || p.Type == model.PartToolUse
	}
	if uses && a.reply.StopReason == model.StopEndTurn || !uses && a.reply.StopReason == model.StopToolUse {
		return fmt.Errorf("stop reason %q does not fit the content", a.reply.StopReason)
	}
	a.done = true
	return nil
}

// count takes the latest figures: they grow while the reply does.
func (a *assembly) count(u *wireUsage) {
	if u == nil {
		return
	}
	t := &a.reply.Usage
	t.InputTokens = max(t.InputTokens, u.InputTokens)
	t.OutputTokens = max(t.OutputTokens, u.OutputTokens)
	t.CacheReadInputTokens = max(t.CacheReadInputTokens, u.CacheReadInputTokens)
	t.CacheCreationInputTokens = max(t.CacheCreationInputTokens, u.CacheCreationInputTokens)
}

// streamError is a failure that comes after the status said all was well.
func streamError(e wireEvent) error {
	if e.Error == nil {
		return errors.New("the stream ended with an error that says nothing")
	}
	kind := model.RequestFailed
	switch e.Error.Type {
	case "overloaded_error":
		kind = model.Overloaded
	case "rate_limit_error":
		kind = model.RateLimited
	case "invalid_request_error", "authentication_error", "permission_error", "not_found_error", "request_too_large":
		kind = model.Rejected
	}
	return &model.Error{Kind: kind, Err: fmt.Errorf("%s: %s", e.Error.Type, e.Error.Message)}
}
