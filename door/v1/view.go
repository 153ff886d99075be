package v1

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// view is which events of a log belong to a list or a stream: those of a session,
// or those of one thread.
type view struct {
	primary dormouse.ThreadID
	// thread is set for the list of one thread.
	thread dormouse.ThreadID
	// voided is set if the session was reverted: what was said since is left out.
	voided func(*dormouse.Event) bool
}

func viewOf(id dormouse.SessionID) view { return view{primary: dormouse.PrimaryThread(id)} }

// shows reports whether an event is part of the view. The list of a session is that
// of its first thread, what concerns the session as a whole, and what is asked of
// people elsewhere.
func (v view) shows(e *dormouse.Event) bool {
	if e.Type == dormouse.HistoryTruncated {
		return true
	}
	if v.voids(e) {
		return false
	}
	if e.Type != dormouse.PromptQueued && e.Type.Audience() != dormouse.ForEveryone {
		return false
	}
	if v.thread != "" {
		return e.Thread == v.thread
	}
	if e.Thread == "" || e.Thread == v.primary {
		return true
	}
	switch e.Type { //nolint:exhaustive // the others are of their own thread alone
	case dormouse.SessionError, dormouse.SessionThreadStatusRunning, dormouse.SessionThreadStatusIdle,
		dormouse.SessionThreadStatusRescheduled, dormouse.SessionThreadStatusTerminated,
		dormouse.AgentCustomToolUse, dormouse.UserCustomToolResult, dormouse.UserToolConfirmation:
		return true
	case dormouse.AgentToolUse:
		return bytes.Contains(e.Payload, []byte(`"evaluated_permission":"ask"`))
	}
	return false
}

// voids reports whether an event is no longer part of the conversation.
func (v view) voids(e *dormouse.Event) bool { return v.voided != nil && v.voided(e) }

// voidedIn returns a function that reports whether an event is no longer part of the
// conversation, because the session was reverted. A prompt that is still queued is part
// of it even if it was sent before that.
func voidedIn(state law.State) func(*dormouse.Event) bool {
	if len(state.Truncations) == 0 {
		return nil
	}
	return func(e *dormouse.Event) bool {
		switch {
		case !state.Truncated(e.Seq):
			return false
		case e.Type == dormouse.PromptQueued:
			return !slices.ContainsFunc(state.Threads, func(t law.Thread) bool {
				return slices.ContainsFunc(t.Queue, func(q dormouse.PromptRecord) bool { return q.ID == e.ID })
			})
		}
		return !survivesRevert(e.Type)
	}
}

// survivesRevert reports whether events of this type still count after a revert: they
// are about the session and not about its turns.
func survivesRevert(t dormouse.EventType) bool {
	switch t { //nolint:exhaustive // the others are of turns
	case dormouse.SessionUpdated, dormouse.SessionThreadCreated, dormouse.SessionDeleted,
		dormouse.SessionStatusTerminated, dormouse.SessionThreadStatusTerminated, dormouse.HistoryTruncated:
		return true
	}
	return false
}

// contextChanged is the event by which this API says that the model gets another
// transcript from here on, and that clients which keep one have to list it again.
const contextChanged dormouse.EventType = "agent.thread_context_compacted"

// publicType is the type that an event has in the API.
func publicType(t dormouse.EventType) dormouse.EventType {
	if t == dormouse.HistoryTruncated {
		return contextChanged
	}
	return t
}

// crossPosted reports whether an event of another thread is listed with its thread.
func (v view) crossPosted(e *dormouse.Event) bool {
	if v.thread != "" || e.Thread == "" || e.Thread == v.primary {
		return false
	}
	switch e.Type { //nolint:exhaustive // the others name their thread themselves, or none
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse, dormouse.UserCustomToolResult, dormouse.UserToolConfirmation:
		return true
	}
	return false
}

// appendEvent encodes an event as the API has it. Payloads are stored in that form, so
// they only have to be put together here.
func (v view) appendEvent(b []byte, e *dormouse.Event) []byte {
	switch e.Type { //nolint:exhaustive // the others are as they are stored
	case dormouse.HistoryTruncated:
		return appendEvent(b, e.ID, contextChanged, &e.Time, nil)
	case dormouse.SessionUpdated:
		return appendEvent(b, e.ID, e.Type, &e.Time, updated(e.Payload))
	case dormouse.PromptQueued:
		queued, _ := queuedEvents(e)
		return append(b, queued[0]...)
	}
	p := e.Payload
	if bytes.HasPrefix(p, []byte(`{"lost":`)) {
		p = lostPayload(e.Type)
	}
	if v.crossPosted(e) {
		p = join(p, dormouse.Encode(struct {
			Thread dormouse.ThreadID `json:"session_thread_id"`
		}{e.Thread}))
	}
	return appendEvent(b, e.ID, e.Type, &e.Time, p)
}

// appendEvent encodes an event with the fields of an object.
func appendEvent(b []byte, id dormouse.EventID, t dormouse.EventType, at *time.Time, fields []byte) []byte {
	b = append(b, `{"type":`...)
	b = strconv.AppendQuote(b, string(t))
	b = append(b, `,"id":`...)
	b = strconv.AppendQuote(b, string(id))
	b = append(b, `,"processed_at":`...)
	if at == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, '"')
		b = at.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	fields = bytes.TrimSpace(fields)
	if len(fields) < 2 || fields[0] != '{' || len(bytes.TrimSpace(fields[1:len(fields)-1])) == 0 {
		return append(b, '}')
	}
	b = append(b, ',')
	return append(b, fields[1:]...)
}

// join is an object with the fields of two.
func join(a, b []byte) []byte {
	if len(bytes.TrimSpace(a)) < 3 {
		return b
	}
	out := append([]byte{}, bytes.TrimSpace(a)...)
	out[len(out)-1] = ','
	return append(out, b[1:]...)
}

// queuedEvents encodes a prompt that waits: its message, and the system message that
// follows it, neither of them processed.
func queuedEvents(e *dormouse.Event) (events [][]byte, ids []dormouse.EventID) {
	var p dormouse.PromptBody
	if json.Unmarshal(e.Payload, &p) != nil || len(p.Content) == 0 {
		return [][]byte{appendEvent(nil, e.ID, dormouse.UserMessage, nil, lostPayload(dormouse.UserMessage))}, []dormouse.EventID{e.ID}
	}
	events = append(events, appendEvent(nil, e.ID, dormouse.UserMessage, nil, dormouse.Encode(dormouse.Message{Content: p.Content})))
	ids = append(ids, e.ID)
	if p.System != nil {
		events = append(events, appendEvent(nil, p.System.ID, dormouse.SystemMessage, nil, dormouse.Encode(dormouse.Message{Content: p.System.Content})))
		ids = append(ids, p.System.ID)
	}
	return events, ids
}

// updated is the payload of an update, in which a title that was removed is null.
func updated(payload []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(payload, &fields) != nil {
		return nil
	}
	if title, ok := fields["title"]; ok && string(title) == `""` {
		fields["title"] = json.RawMessage("null")
	}
	return dormouse.Encode(fields)
}

// lostPayload replaces a payload that cannot be read any more.
func lostPayload(t dormouse.EventType) []byte {
	switch t { //nolint:exhaustive // the others are too small to be stored apart
	case dormouse.UserMessage, dormouse.AgentMessage:
		return []byte(`{"content":[{"type":"redacted"}]}`)
	case dormouse.SystemMessage:
		return []byte(`{"content":[{"type":"text","text":"(lost)"}]}`)
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		return []byte(`{"name":"lost","input":{}}`)
	case dormouse.AgentToolResult:
		return []byte(`{"tool_use_id":"lost","is_error":true}`)
	case dormouse.UserCustomToolResult:
		return []byte(`{"custom_tool_use_id":"lost","is_error":true}`)
	}
	return nil
}
