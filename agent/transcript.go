package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
)

// cutNotice follows a reply that was cut short, so that the model goes on from
// there instead of starting over. Its prefix marks it as ours.
const cutNotice = model.NoticePrefix + ": the reply above was cut off before it was complete. Continue from where it stopped; do not repeat it.]"

// restartNotice follows what was done when a sandbox was started anew.
const restartNotice = model.NoticePrefix + ": the sandbox was restarted. Files are as they were; background processes, shell variables and the working directory are gone.]"

// swapNotice follows what was done when the files became others.
const swapNotice = model.NoticePrefix + ": the workspace was taken back to a snapshot. Its files are those of then; background processes, shell variables and the working directory are gone.]"

// lostText stands for what was said and can no longer be read.
const lostText = model.NoticePrefix + ": what was said here is lost; its stored copy cannot be read any more.]"

// lostResult stands in for the result of a tool call that has none.
const lostResult = model.NoticePrefix + ": no result of this tool call was recorded. Verify before retrying.]"

// Talk is an event of a conversation, read once and used for every call after.
type Talk struct {
	dormouse.Event
	parts  []model.Part // of a message, or the one of a tool call
	answer model.Part   // of a result
	cut    dormouse.EventID
	notice string // something happened that the model should know
	// missing says what a sandbox that started should have and has not.
	missing string
}

// Read takes from an event what a transcript needs of it.
func Read(e dormouse.Event) Talk {
	t := Talk{Event: e}
	switch e.Type { //nolint:exhaustive // only the conversation goes to the model
	case dormouse.UserMessage, dormouse.AgentMessage:
		t.parts = parts(e)
	case dormouse.SystemMessage:
		t.notice = systemWords(e)
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		var p dormouse.ToolUse
		if json.Unmarshal(e.Payload, &p) == nil {
			t.parts = []model.Part{{Type: model.PartToolUse, ID: string(e.ID), Name: p.Name, Input: p.Input}}
		}
	case dormouse.AgentToolResult, dormouse.UserCustomToolResult:
		t.answer = result(e)
	case dormouse.SandboxStarted:
		var p dormouse.SandboxFact
		if json.Unmarshal(e.Payload, &p) == nil && p.Processes == dormouse.ProcessesLost {
			t.notice = restartNotice
		}
		if p.Missing != "" {
			t.missing = model.NoticePrefix + ": packages are missing from this sandbox: " + p.Missing + ".]"
		}
	case dormouse.WorkspaceSwapped:
		var p dormouse.WorkspaceSwap
		if json.Unmarshal(e.Payload, &p) == nil && p.Reason == dormouse.SwapRestored {
			t.notice = swapNotice
		}
	case dormouse.WorkspaceRecovered:
		t.notice = recoveredNotice(e)
	case dormouse.SnapshotTaken:
		t.notice = leftNotice(e)
	case dormouse.SandboxRelieved:
		var p dormouse.SandboxFact
		if json.Unmarshal(e.Payload, &p) == nil {
			t.notice = model.NoticePrefix + ": " + p.Reason + ".]"
		}
	case dormouse.OpFinished:
		// Nearly every op ends whole; reading each end would be most of the work.
		if bytes.Contains(e.Payload, []byte(`"partial"`)) {
			var p dormouse.OpEnd
			_ = json.Unmarshal(e.Payload, &p)
			t.cut = p.Partial
		}
	}
	return t
}

// recoveredNotice says which files were lost and put back.
func recoveredNotice(e dormouse.Event) string {
	var p dormouse.WorkspaceRecovery
	if json.Unmarshal(e.Payload, &p) != nil {
		return ""
	}
	var b strings.Builder
	b.WriteString(model.NoticePrefix + ": the machine of the sandbox lost power")
	if p.Condition == "failed" {
		b.Reset()
		b.WriteString(model.NoticePrefix + ": the disk of the sandbox failed")
	}
	b.WriteString(". Files written")
	if !p.Since.IsZero() {
		b.WriteString(" after " + p.Since.UTC().Format(time.RFC3339))
	}
	b.WriteString(" may be missing or incomplete, whatever tool results say; verify them before you rely on them.")
	const few = 20
	if p.Count > 0 {
		fmt.Fprintf(&b, " %d of them are as they were in the last snapshot:", p.Count)
		for _, f := range p.Files[:min(few, len(p.Files))] {
			fmt.Fprintf(&b, " %.200q", f.Path)
			if f.Kept != "" {
				fmt.Fprintf(&b, " (the one found is kept as %.200q)", f.Kept)
			}
			if f.Outside {
				b.WriteString(" (there was no room for the one found; people have it outside of the sandbox)")
			}
		}
		if p.Count > few {
			b.WriteString(" and others")
		}
		b.WriteString(".")
	}
	if p.Aside != "" {
		b.WriteString(" All other files, the home directory and /tmp included, are gone from the sandbox; people have them outside of it.")
	}
	b.WriteString("]")
	return b.String()
}

// leftNotice says which files of the workspace the snapshot of a sandbox that went to
// sleep lacks. They are in the workspace as before.
func leftNotice(e dormouse.Event) string {
	if !bytes.Contains(e.Payload, []byte(`"left_out"`)) {
		return ""
	}
	var p dormouse.Snapshot
	if json.Unmarshal(e.Payload, &p) != nil || p.Reason != dormouse.SnapshotSealing || p.LeftOut == 0 {
		return ""
	}
	const few = 5
	var names []string
	for _, path := range p.Left[:min(few, len(p.Left))] {
		names = append(names, fmt.Sprintf("%.200q", path))
	}
	return fmt.Sprintf("%s: %d of the workspace's files are in no snapshot, and would be gone after going back to one: %s.]",
		model.NoticePrefix, p.LeftOut, strings.Join(names, ", "))
}

// ReadAll reads a whole conversation.
func ReadAll(events []dormouse.Event) []Talk {
	talk := make([]Talk, len(events))
	for i, e := range events {
		talk[i] = Read(e)
	}
	return talk
}

// Transcript is the conversation as a model takes it. Whatever the log went
// through, it is valid: roles alternate and begin with the user, every tool
// call is followed by exactly one result, nothing is empty and nothing twice.
func Transcript(talk []Talk) []model.Message {
	b := &transcript{results: make(map[string]model.Part), cut: make(map[dormouse.EventID]bool), used: make(map[string]bool)}
	for _, t := range talk {
		if _, again := b.results[t.answer.Use]; t.answer.Use != "" && !again { // the first result wins
			b.results[t.answer.Use] = t.answer
		}
		if t.cut != "" {
			b.cut[t.cut] = true
		}
	}
	for _, t := range talk {
		b.add(t)
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
	notices  []string                  // what is to be told after the results
	left     string                    // what snapshots lack, as it was told last
	swapped  bool                      // the files became others, and no sandbox has them yet
}

func (b *transcript) tell(notice string) {
	if notice != "" {
		b.notices = append(b.notices, notice)
	}
}

func (b *transcript) add(t Talk) {
	switch t.Type { //nolint:exhaustive // only the conversation goes to the model
	case dormouse.SpanModelRequestStart:
		b.settle() // what follows is another reply
	case dormouse.UserMessage:
		b.settle()
		b.append(model.RoleUser, t.parts...)
	case dormouse.AgentMessage:
		b.append(model.RoleAssistant, t.parts...)
		b.cutShort = b.cutShort || b.cut[t.ID]
	case dormouse.WorkspaceSwapped:
		b.swapped = t.notice != ""
		b.tell(t.notice)
	case dormouse.SandboxStarted:
		if !b.swapped { // else it was told
			b.tell(t.notice)
		}
		b.tell(t.missing)
		b.swapped = false
	case dormouse.SnapshotTaken:
		if t.notice != "" && t.notice != b.left { // it would be said after each sleep
			b.tell(t.notice)
			b.left = t.notice
		}
	case dormouse.SandboxRelieved, dormouse.WorkspaceRecovered, dormouse.SystemMessage:
		b.tell(t.notice)
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		if len(t.parts) == 0 || b.used[string(t.ID)] {
			return
		}
		b.used[string(t.ID)] = true
		b.append(model.RoleAssistant, t.parts...)
		b.pending = append(b.pending, string(t.ID))
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
	for _, n := range b.notices {
		b.append(model.RoleUser, model.Part{Type: model.PartText, Text: n})
	}
	b.pending, b.cutShort, b.notices = nil, false, nil
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
	b.messages = append(b.messages, model.Message{Role: role, Content: slices.Clip(ps)}) // what was read is shared
}

// systemWords is what an operator says in the middle of a conversation, marked so
// that the model tells it from what people and tools say.
func systemWords(e dormouse.Event) string {
	var words []string
	for _, p := range parts(e) {
		words = append(words, p.Text)
	}
	if len(words) == 0 {
		return ""
	}
	return model.NoticePrefix + ": message from the operator of this session:]\n" + strings.Join(words, "\n\n")
}

// parts turns a message's blocks into parts, without the empty ones.
func parts(e dormouse.Event) []model.Part {
	var m struct {
		dormouse.Message
		dormouse.Lost
	}
	if json.Unmarshal(e.Payload, &m) != nil {
		return nil
	}
	if m.Blob != "" {
		return []model.Part{{Type: model.PartText, Text: lostText}}
	}
	return blocks(m.Content)
}

func blocks(content []dormouse.Block) []model.Part {
	var out []model.Part
	for _, b := range content {
		if b.Type == "search_result" {
			b = dormouse.Text(found(b))
		}
		if b.Type == model.PartText && strings.TrimSpace(b.Text) == "" {
			continue
		}
		out = append(out, model.Part{Type: b.Type, Text: b.Text, Source: b.Source, Title: b.Title, Context: b.Context})
	}
	return out
}

// found words a search result, which not every model takes as such.
func found(b dormouse.Block) string {
	var source string
	var content []dormouse.Block
	_, _ = json.Unmarshal(b.Source, &source), json.Unmarshal(b.Content, &content)
	words := []string{strings.TrimSpace(b.Title + " " + source)}
	for _, c := range content {
		words = append(words, c.Text)
	}
	return strings.Join(words, "\n")
}

// result reads the result of a tool call.
func result(e dormouse.Event) model.Part {
	var r dormouse.ToolResult
	if e.Type == dormouse.UserCustomToolResult {
		var c dormouse.CustomToolResult
		_ = json.Unmarshal(e.Payload, &c)
		r = dormouse.ToolResult(c)
	} else {
		_ = json.Unmarshal(e.Payload, &r)
	}
	if r.Use == "" {
		return model.Part{}
	}
	p := model.Part{Type: model.PartToolResult, Use: string(r.Use), Result: blocks(r.Content), IsError: r.IsError}
	if len(p.Result) == 0 {
		p.Result = []model.Part{{Type: model.PartText, Text: "(no output)"}}
	}
	return p
}
