package v1_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// part is one page of a session's events, and how to ask for the next.
func (h *testServer) part(id, query string) (events []json.RawMessage, next string) {
	h.t.Helper()
	_, raw := h.do("GET", "/v1/sessions/"+id+"/events?"+query, "")
	var p struct {
		Data []json.RawMessage `json:"data"`
		Next *string           `json:"next_page"`
	}
	if err := json.Unmarshal([]byte(raw), &p); err != nil || p.Data == nil {
		h.t.Fatal(raw)
	}
	if p.Next != nil {
		next = "&page=" + *p.Next
	}
	return p.Data, next
}

// rest reads the pages after one.
func (h *testServer) rest(id, query, next string) (all []json.RawMessage) {
	h.t.Helper()
	for next != "" {
		var events []json.RawMessage
		events, next = h.part(id, query+next)
		all = append(all, events...)
	}
	return all
}

func fields(events []json.RawMessage, name string) (out []string) {
	for _, e := range events {
		out = append(out, field(e, name))
	}
	return out
}

const (
	words          = "types[]=user.message&types[]=system.message&limit="
	survivesRevert = `SCRIPT[{"hang":true}]`
	note           = `{"type":"system.message","content":[{"type":"text","text":"note"}]}`
	halt           = `{"type":"user.interrupt"}`
)

// crowded is a session with a turn that does not end, and prompts that wait: the ids
// of their messages.
func (h *testServer) crowded() (id string, waiting []string) {
	id = h.made("")
	h.sends(200, id, message(survivesRevert))
	h.until(id, "span.model_request_start", 1)
	for _, batch := range [][]string{{message("one " + survivesRevert), note}, {message("two " + survivesRevert)}, {message("three"), note}} {
		for _, e := range h.sends(200, id, batch...) {
			waiting = append(waiting, e.(map[string]any)["id"].(string))
		}
	}
	return id, waiting
}

func TestAPageMayEndBetweenAMessageAndItsSystemMessage(t *testing.T) {
	h := newSessionServer(t)
	id, waiting := h.crowded()
	backwards := slices.Clone(waiting)
	slices.Reverse(backwards)
	for _, n := range []string{"1", "2", "3", "4"} {
		events, next := h.part(id, words+n)
		same(t, fields(append(events, h.rest(id, words+n, next)...), "id")[1:], waiting...)
		events, next = h.part(id, words+n+"&order=desc")
		same(t, fields(append(events, h.rest(id, words+n+"&order=desc", next)...), "id")[:5], backwards...)
	}
}

// once wants every id among the events, and not twice.
func once(t *testing.T, query string, events []json.RawMessage, ids []string) {
	t.Helper()
	got := fields(events, "id")
	for _, want := range ids {
		if i := slices.Index(got, want); i < 0 || slices.Contains(got[i+1:], want) {
			t.Errorf("%s: %s is not there once, in %s", query, want, events)
		}
	}
}

func TestWhatIsTakenBetweenTwoPagesIsOnOneOfThem(t *testing.T) {
	for _, order := range []string{"", "&order=desc"} {
		for n := range 6 {
			h := newSessionServer(t)
			id, waiting := h.crowded()
			query := fmt.Sprintf("%s%d%s", words, n+1, order)
			events, next := h.part(id, query)
			h.sends(200, id, halt) // the first of those that wait is next
			h.until(id, "span.model_request_start", 2)
			h.sends(200, id, message("late"))
			events = append(events, h.rest(id, query, next)...)
			once(t, query, events, waiting)
		}
	}
}

func TestWhatIsCancelledBetweenTwoPagesIsOnOneOfThem(t *testing.T) {
	for _, order := range []string{"", "&order=desc"} {
		for n := range 6 {
			h := newSessionServer(t)
			id, waiting := h.crowded()
			query := fmt.Sprintf("%s%d%s", words, n+1, order)
			events, next := h.part(id, query)
			if err := h.sessions.Do(t.Context(), dormouse.SessionID(id), dormouse.ActorServer, law.Terminate{}); err != nil {
				t.Fatal(err)
			}
			events = append(events, h.rest(id, query, next)...)
			once(t, query, events, waiting)
		}
	}
}

func TestAResultIsTakenOnceWithItsSystemMessage(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	h.sends(200, id, message(`SCRIPT[{"tools":[{"name":"ticket","input":{}}]},{"text":"done"}]`))
	use := field(h.until(id, "agent.custom_tool_use", 1), "id")
	h.until(id, "session.status_idle", 1) // it waits for the result
	result := fmt.Sprintf(`{"type":"user.custom_tool_result","custom_tool_use_id":%q,"content":[{"type":"text","text":"42"}]}`, use)
	first := h.sends(200, id, result, note)
	h.until(id, "session.status_idle", 2)
	if again := h.sends(200, id, result, note); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("sent again it is %v, first %v", again, first)
	}
	if n := len(h.listed(id, "types[]=system.message")); n != 1 {
		t.Errorf("the note is there %d times", n)
	}
	other := strings.Replace(note, "note", "another", 1)
	h.sends(400, id, result, other)
}

func TestAnswersThatComeTogetherAreOneAnswer(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	h.sends(200, id, message(`SCRIPT[{"tools":[{"name":"ticket","input":{"n":1}},{"name":"ticket","input":{"n":2}}]},{"text":"done"}]`))
	h.until(id, "session.status_idle", 1)
	var results []string
	for _, use := range fields(h.listed(id, "types[]=agent.custom_tool_use"), "id") {
		results = append(results, fmt.Sprintf(`{"type":"user.custom_tool_result","custom_tool_use_id":%q}`, use))
	}
	h.sends(200, id, append(results, message("and then"), note)...)
	h.until(id, "session.status_idle", 3)
	idle := h.listed(id, "types[]=session.status_idle")
	for i, want := range []string{"requires_action", "end_turn", "end_turn"} {
		if !strings.Contains(string(idle[i]), want) {
			t.Errorf("its rest is %s, want %s", idle[i], want)
		}
	}
	h.listed(id, "limit=1000") // in order
}

// What was said after the point that a session went back to is not listed any more,
// what comes after that is, and whoever follows is told to list it again.
func TestWhatASessionHasGoneBackFromIsNotListed(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	h.sends(200, id, message("one"))
	h.until(id, "session.status_idle", 1)
	state, err := h.sessions.Peek(t.Context(), dormouse.SessionID(id))
	if err != nil {
		t.Fatal(err)
	}
	h.sends(200, id, message("two"))
	h.until(id, "session.status_idle", 2)
	events, stop := h.follows(id, "events/stream")
	defer stop()
	back := law.Swap{To: state.Seq, WorkspaceSwap: dormouse.WorkspaceSwap{
		Number: state.Workspace.Number + 1, Snapshot: "snap_1", Reason: dormouse.SwapRestored,
		Layers: []dormouse.Layer{{Digest: dormouse.DigestOf(nil), DiffID: dormouse.DigestOf(nil), Size: 1}},
	}}
	if err := h.sessions.Do(t.Context(), dormouse.SessionID(id), dormouse.User("ada"), back); err != nil {
		t.Fatal(err)
	}
	said := func(events []json.RawMessage) (texts []string) {
		for _, e := range events {
			var m struct {
				Type    string
				Content []struct{ Text string }
			}
			_ = json.Unmarshal(e, &m)
			switch m.Type {
			case "agent.thread_context_compacted":
				texts = append(texts, m.Type)
			case "user.message":
				texts = append(texts, m.Content[0].Text)
			}
		}
		return texts
	}
	if f := <-events; !strings.Contains(string(f.data), "agent.thread_context_compacted") {
		t.Errorf("the follower was told %s", f.data)
	}
	h.sends(200, id, message("three"))
	h.until(id, "session.status_idle", 2)
	want := []string{"one", "agent.thread_context_compacted", "three"}
	if diff := cmp.Diff(want, said(h.listed(id, ""))); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	slices.Reverse(want)
	if diff := cmp.Diff(want, said(h.listed(id, "order=desc"))); diff != "" {
		t.Errorf("listed from the end (-want +got):\n%s", diff)
	}
	// So it is for who comes back with a cursor from before.
	again, over := h.follows(id, "events/stream", "Last-Event-ID", "0")
	defer over()
	var seen []json.RawMessage
	for f := range again {
		if seen = append(seen, f.data); strings.Contains(string(f.data), `"text":"three"`) {
			break
		}
	}
	slices.Reverse(want)
	if diff := cmp.Diff(want, slices.Compact(said(seen))); diff != "" { // a message comes as it waits, and as it is taken
		t.Errorf("streamed (-want +got):\n%s", diff)
	}
}
