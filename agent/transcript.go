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

// cutNotice follows a truncated reply, so that the model continues it instead of
// starting over. The prefix marks it as a notice of the server.
const cutNotice = model.NoticePrefix + ": the reply above was cut off before it was complete. Continue from where it stopped; do not repeat it.]"

// restartNotice tells the model that the sandbox was restarted.
const restartNotice = model.NoticePrefix + ": the sandbox was restarted. Files are as they were; background processes, shell variables and the working directory are gone.]"

// restoreNotice tells the model that the workspace was restored from a snapshot.
const restoreNotice = model.NoticePrefix + ": the workspace was taken back to a snapshot. Its files are those of then; background processes, shell variables and the working directory are gone.]"

// lostText replaces a message that can no longer be read.
const lostText = model.NoticePrefix + ": what was said here is lost; its stored copy cannot be read any more.]"

// lostResult replaces the missing result of a tool call.
const lostResult = model.NoticePrefix + ": no result of this tool call was recorded. Verify before retrying.]"

// Entry is an event of the transcript, decoded once and used for every model call.
type Entry struct {
	dormouse.Event
	parts  []model.Part // of a message, or the one of a tool call
	answer model.Part   // of a result
	cut    dormouse.EventID
	notice string // what the model is told about the event
	// missing is the notice about packages that a started sandbox lacks.
	missing string
}

// Read decodes an event for the transcript.
func Read(e dormouse.Event) Entry {
	t := Entry{Event: e}
	switch e.Type { //nolint:exhaustive // only the conversation goes to the model
	case dormouse.UserMessage, dormouse.AgentMessage:
		t.parts = parts(e)
	case dormouse.SystemMessage:
		t.notice = systemNotice(e)
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
			t.notice = restoreNotice
		}
	case dormouse.WorkspaceRecovered:
		t.notice = recoveredNotice(e)
	case dormouse.SnapshotTaken:
		t.notice = omittedNotice(e)
	case dormouse.SandboxRelieved:
		var p dormouse.SandboxFact
		if json.Unmarshal(e.Payload, &p) == nil {
			t.notice = model.NoticePrefix + ": " + p.Reason + ".]"
		}
	case dormouse.OpFinished:
		// Few ops are partial, and decoding each would dominate the cost.
		if bytes.Contains(e.Payload, []byte(`"partial"`)) {
			var p dormouse.OpEnd
			_ = json.Unmarshal(e.Payload, &p)
			t.cut = p.Partial
		}
	}
	return t
}

// recoveredNotice lists the files that were lost and recovered.
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
	of := "the last snapshot"
	if p.Uncompared != "" {
		b.WriteString(" The last snapshot is lost, so that nothing was put back from it.")
		of = "an older snapshot"
	}
	const few = 20
	if p.Count > 0 {
		fmt.Fprintf(&b, " %d of them are as they were in %s:", p.Count, of)
		for _, f := range p.Files[:min(few, len(p.Files))] {
			fmt.Fprintf(&b, " %.200q", f.Path)
			if f.SavedAs != "" {
				fmt.Fprintf(&b, " (the one found is kept as %.200q)", f.SavedAs)
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

// omittedNotice lists the files that the snapshot of a hibernated sandbox lacks. They are
// still in the workspace.
func omittedNotice(e dormouse.Event) string {
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

// ReadAll decodes a whole transcript.
func ReadAll(events []dormouse.Event) []Entry {
	entries := make([]Entry, len(events))
	for i, e := range events {
		entries[i] = Read(e)
	}
	return entries
}

// Transcript is the conversation as a model is sent it. It is valid whatever crashes
// the log has recorded: roles alternate and begin with the user, every tool call is
// followed by exactly one result, and no part is empty or repeated.
func Transcript(entries []Entry) []model.Message {
	b := &transcript{results: make(map[string]model.Part), cut: make(map[dormouse.EventID]bool), used: make(map[string]bool)}
	for _, t := range entries {
		if _, again := b.results[t.answer.Use]; t.answer.Use != "" && !again { // the first result wins
			b.results[t.answer.Use] = t.answer
		}
		if t.cut != "" {
			b.cut[t.cut] = true
		}
	}
	for _, t := range entries {
		b.add(t)
	}
	b.flush()
	return b.messages
}

type transcript struct {
	messages []model.Message
	results  map[string]model.Part     // by tool use
	cut      map[dormouse.EventID]bool // messages that were cut short
	pending  []string                  // tool uses of the last assistant message
	cutShort bool                      // the last assistant message was cut short
	used     map[string]bool           // tool uses seen so far
	notices  []string                  // to be added after the results
	left     string                    // the last notice about files that snapshots lack
	swapped  bool                      // the workspace was restored and no sandbox has started since
}

func (b *transcript) addNotice(notice string) {
	if notice != "" {
		b.notices = append(b.notices, notice)
	}
}

func (b *transcript) add(t Entry) {
	switch t.Type { //nolint:exhaustive // only the conversation goes to the model
	case dormouse.SpanModelRequestStart:
		b.flush() // what follows is another reply
	case dormouse.UserMessage:
		b.flush()
		b.appendParts(model.RoleUser, t.parts...)
	case dormouse.AgentMessage:
		b.appendParts(model.RoleAssistant, t.parts...)
		b.cutShort = b.cutShort || b.cut[t.ID]
	case dormouse.WorkspaceSwapped:
		b.swapped = t.notice != ""
		b.addNotice(t.notice)
	case dormouse.SandboxStarted:
		if !b.swapped { // the restore was announced already
			b.addNotice(t.notice)
		}
		b.addNotice(t.missing)
		b.swapped = false
	case dormouse.SnapshotTaken:
		if t.notice != "" && t.notice != b.left { // it would be repeated after each hibernation
			b.addNotice(t.notice)
			b.left = t.notice
		}
	case dormouse.SandboxRelieved, dormouse.WorkspaceRecovered, dormouse.SystemMessage:
		b.addNotice(t.notice)
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		if len(t.parts) == 0 || b.used[string(t.ID)] {
			return
		}
		b.used[string(t.ID)] = true
		b.appendParts(model.RoleAssistant, t.parts...)
		b.pending = append(b.pending, string(t.ID))
	}
}

// flush completes the last assistant message: it appends the results of its tool calls,
// a notice if the reply was truncated, and the pending notices.
func (b *transcript) flush() {
	for _, use := range b.pending {
		r, ok := b.results[use]
		if !ok {
			r = model.Part{
				Type: model.PartToolResult, Use: use, IsError: true,
				Result: []model.Part{{Type: model.PartText, Text: lostResult}},
			}
		}
		b.appendParts(model.RoleUser, r)
	}
	if n := len(b.messages); b.cutShort && n > 0 && b.messages[n-1].Role == model.RoleAssistant {
		b.appendParts(model.RoleUser, model.Part{Type: model.PartText, Text: cutNotice})
	}
	for _, n := range b.notices {
		b.appendParts(model.RoleUser, model.Part{Type: model.PartText, Text: n})
	}
	b.pending, b.cutShort, b.notices = nil, false, nil
}

func (b *transcript) appendParts(role string, ps ...model.Part) {
	if len(ps) == 0 {
		return
	}
	if len(b.messages) == 0 && role == model.RoleAssistant {
		b.appendParts(model.RoleUser, model.Part{Type: model.PartText, Text: model.NoticePrefix + ": the conversation begins here.]"})
	}
	if n := len(b.messages); n > 0 && b.messages[n-1].Role == role {
		b.messages[n-1].Content = append(b.messages[n-1].Content, ps...)
		return
	}
	b.messages = append(b.messages, model.Message{Role: role, Content: slices.Clip(ps)}) // entries share their parts
}

// systemNotice is a message of the operator, marked so that the model can tell it from
// messages of users and results of tools.
func systemNotice(e dormouse.Event) string {
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
			b = dormouse.Text(searchResultText(b))
		}
		if b.Type == model.PartText && strings.TrimSpace(b.Text) == "" {
			continue
		}
		out = append(out, model.Part{Type: b.Type, Text: b.Text, Source: b.Source, Title: b.Title, Context: b.Context})
	}
	return out
}

// searchResultText renders a search result as text, because not every model takes
// search results.
func searchResultText(b dormouse.Block) string {
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
