package agent

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
)

// cutNotice follows a reply that was cut short, so that the model goes on from
// there instead of starting over. Its prefix marks it as ours.
const cutNotice = model.NoticePrefix + ": the reply above was cut off before it was complete. Continue from where it stopped; do not repeat it.]"

// lostResult stands in for the result of a tool call that has none.
const lostResult = model.NoticePrefix + ": no result of this tool call was recorded. Verify before retrying.]"

// Transcript is the conversation as a model takes it. Whatever the log went
// through, it is valid: roles alternate and begin with the user, every tool
// call is followed by exactly one result, nothing is empty and nothing twice.
func Transcript(events []dormouse.Event) []model.Message {
	b := &transcript{results: collectResults(events), cut: collectCuts(events), used: make(map[string]bool)}
	for _, e := range events {
		b.add(e)
	}
	b.settle()
	return b.messages
}

type transcript struct {
	messages []model.Message
	results  map[string]model.Part     // by tool use
	cut      map[dormouse.EventID]bool // messages that were cut short
	pending  []string                  // tool uses of the last assistant message
	cutShort bool                      // the last assistant message was cut short
	used     map[string]bool           // tool uses seen so far
}

func (b *transcript) add(e dormouse.Event) {
	switch e.Type { //nolint:exhaustive // only the conversation goes to the model
	case dormouse.SpanModelRequestStart:
		b.settle() // what follows is another reply
	case dormouse.UserMessage:
		b.settle()
		b.append(model.RoleUser, parts(e)...)
	case dormouse.AgentMessage:
		b.append(model.RoleAssistant, parts(e)...)
		b.cutShort = b.cutShort || b.cut[e.ID]
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		var p dormouse.ToolUse
		if json.Unmarshal(e.Payload, &p) != nil || b.used[string(e.ID)] {
			return
		}
		b.used[string(e.ID)] = true
		b.append(model.RoleAssistant, model.Part{Type: model.PartToolUse, ID: string(e.ID), Name: p.Name, Input: p.Input})
		b.pending = append(b.pending, string(e.ID))
	}
}

// settle answers the last assistant message: its tool calls with their results,
// and a reply that was cut short with a notice.
func (b *transcript) settle() {
	for _, use := range b.pending {
		r, ok := b.results[use]
		if !ok {
			r = model.Part{
				Type: model.PartToolResult, Use: use, IsError: true,
				Result: []model.Part{{Type: model.PartText, Text: lostResult}},
			}
		}
		b.append(model.RoleUser, r)
	}
	if n := len(b.messages); b.cutShort && n > 0 && b.messages[n-1].Role == model.RoleAssistant {
		b.append(model.RoleUser, model.Part{Type: model.PartText, Text: cutNotice})
	}
	b.pending, b.cutShort = nil, false
}

func (b *transcript) append(role string, ps ...model.Part) {
	if len(ps) == 0 {
		return
	}
	if len(b.messages) == 0 && role == model.RoleAssistant {
		b.append(model.RoleUser, model.Part{Type: model.PartText, Text: model.NoticePrefix + ": the conversation begins here.]"})
	}
	if n := len(b.messages); n > 0 && b.messages[n-1].Role == role {
		b.messages[n-1].Content = append(b.messages[n-1].Content, ps...)
		return
	}
	b.messages = append(b.messages, model.Message{Role: role, Content: ps})
}

// parts turns a message's blocks into parts, without the empty ones.
func parts(e dormouse.Event) []model.Part {
	var m dormouse.Message
	if json.Unmarshal(e.Payload, &m) != nil {
		return nil
	}
	return blocks(m.Content)
}

func blocks(content []dormouse.Block) []model.Part {
	var out []model.Part
	for _, b := range content {
		if b.Type == model.PartText && strings.TrimSpace(b.Text) == "" {
			continue
		}
		out = append(out, model.Part{Type: b.Type, Text: b.Text, Source: b.Source, Title: b.Title, Context: b.Context})
	}
	return out
}

// collectResults finds the first result of every tool call.
func collectResults(events []dormouse.Event) map[string]model.Part {
	results := make(map[string]model.Part)
	for _, e := range events {
		var r dormouse.ToolResult
		switch e.Type { //nolint:exhaustive // only results are collected
		case dormouse.AgentToolResult:
			_ = json.Unmarshal(e.Payload, &r)
		case dormouse.UserCustomToolResult:
			var c dormouse.CustomToolResult
			_ = json.Unmarshal(e.Payload, &c)
			r = dormouse.ToolResult(c)
		default:
			continue
		}
		if _, again := results[string(r.Use)]; again || r.Use == "" {
			continue
		}
		p := model.Part{Type: model.PartToolResult, Use: string(r.Use), Result: blocks(r.Content), IsError: r.IsError}
		if len(p.Result) == 0 {
			p.Result = []model.Part{{Type: model.PartText, Text: "(no output)"}}
		}
		results[string(r.Use)] = p
	}
	return results
}

// collectCuts finds the messages that hold a reply cut short.
func collectCuts(events []dormouse.Event) map[dormouse.EventID]bool {
	cuts := make(map[dormouse.EventID]bool)
	for _, e := range events {
		// Nearly every op ends whole, and every call to the model asks again.
		if e.Type != dormouse.OpFinished || !bytes.Contains(e.Payload, []byte(`"partial"`)) {
			continue
		}
		var p dormouse.OpEnd
		if json.Unmarshal(e.Payload, &p) == nil && p.Partial != "" {
			cuts[p.Partial] = true
		}
	}
	return cuts
}
