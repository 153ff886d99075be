package anthropic

import (
	"encoding/json"
	"fmt"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
)

// answer is a reply as far as it has come.
type answer struct {
	content []model.Part
	blocks  map[int64]int // which part a block of the wire is; those we do not keep have none
	thought bool
	stop    string
	usage   dormouse.ModelUsage
	size    int
	begun   bool
	over    bool
}

// addEvent adds one event to the answer.
func (a *answer) addEvent(e sdk.MessageStreamEventUnion, delta func(model.Delta) error) error {
	if !a.begun && e.Type != "message_start" {
		return broken("it begins with %q", e.Type)
	}
	switch e.Type {
	case "message_start":
		a.begun, a.blocks = true, make(map[int64]int)
		u := e.Message.Usage
		a.usage = dormouse.ModelUsage{
			InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
			CacheReadInputTokens: u.CacheReadInputTokens, CacheCreationInputTokens: u.CacheCreationInputTokens,
		}
	case "content_block_start":
		return a.begin(e, delta)
	case "content_block_delta":
		return a.add(e, delta)
	case "message_delta":
		a.stop = string(e.Delta.StopReason)
		a.count(e.Usage)
	case "message_stop":
		a.over = true
	}
	return nil
}

// count takes the totals of a message, of which those that are not sent again stay.
func (a *answer) count(u sdk.MessageDeltaUsage) {
	a.usage.OutputTokens = u.OutputTokens
	a.usage.InputTokens = max(a.usage.InputTokens, u.InputTokens)
	a.usage.CacheReadInputTokens = max(a.usage.CacheReadInputTokens, u.CacheReadInputTokens)
	a.usage.CacheCreationInputTokens = max(a.usage.CacheCreationInputTokens, u.CacheCreationInputTokens)
}

func (a *answer) begin(e sdk.MessageStreamEventUnion, delta func(model.Delta) error) error {
	if _, twice := a.blocks[e.Index]; twice {
		return broken("block %d begins twice", e.Index)
	}
	switch e.ContentBlock.Type {
	case "text":
		a.blocks[e.Index] = len(a.content)
		a.content = append(a.content, model.Part{Type: model.PartText})
		return a.say(e.Index, e.ContentBlock.Text, delta)
	case "tool_use":
		a.blocks[e.Index] = len(a.content)
		a.content = append(a.content, model.Part{Type: model.PartToolUse, ID: e.ContentBlock.ID, Name: e.ContentBlock.Name})
	case "thinking", "redacted_thinking":
		a.thought = true // what it thinks is not asked for, and not kept
	}
	return nil
}

func (a *answer) add(e sdk.MessageStreamEventUnion, delta func(model.Delta) error) error {
	i, ok := a.blocks[e.Index]
	switch {
	case !ok:
		return nil
	case e.Delta.Type == "text_delta" && a.content[i].Type == model.PartText:
		return a.say(e.Index, e.Delta.Text, delta)
	case e.Delta.Type == "input_json_delta" && a.content[i].Type == model.PartToolUse:
		if err := a.grow(len(e.Delta.PartialJSON)); err != nil {
			return err
		}
		a.content[i].Input = append(a.content[i].Input, e.Delta.PartialJSON...)
	}
	return nil
}

// say adds a fragment of text.
func (a *answer) say(block int64, text string, delta func(model.Delta) error) error {
	if text == "" {
		return nil
	}
	if err := a.grow(len(text)); err != nil {
		return err
	}
	i := a.blocks[block]
	a.content[i].Text += text
	return delta(model.Delta{Index: a.position(i), Text: text})
}

// position is where a part is in the reply, which has none that are empty.
func (a *answer) position(i int) int {
	n := 0
	for _, p := range a.content[:i] {
		if p.Type != model.PartText || p.Text != "" {
			n++
		}
	}
	return n
}

func (a *answer) grow(n int) error {
	if a.size += n; a.size > maxReply {
		return broken("it is longer than %d bytes", maxReply)
	}
	return nil
}

// reply is the whole answer.
func (a *answer) reply() (model.Reply, error) {
	r := model.Reply{Thought: a.thought, StopReason: a.stop, Usage: a.usage}
	for _, p := range a.content {
		switch {
		case p.Type == model.PartText && p.Text == "":
			continue
		case p.Type == model.PartToolUse && len(p.Input) == 0:
			p.Input = json.RawMessage("{}")
		case p.Type == model.PartToolUse && a.stop == model.StopMaxTokens && !json.Valid(p.Input):
			continue // it was cut off within it
		case p.Type == model.PartToolUse && !json.Valid(p.Input):
			return r, broken("the input of %s is no JSON", p.Name)
		}
		r.Content = append(r.Content, p)
	}
	if r.StopReason == "" {
		return r, broken("it does not say why it stops")
	}
	return r, nil
}

func broken(format string, args ...any) error {
	return &model.Error{Kind: model.RequestFailed, Err: fmt.Errorf("read the answer: "+format, args...)}
}
