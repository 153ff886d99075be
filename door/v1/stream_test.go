package v1_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/oracle/order"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestPreviewsAreTheBeginningOfWhatIsSaid(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	events, stop := h.follows(id, "events/stream?event_deltas[]=agent.message")
	defer stop()
	plain, end := h.follows(id, "events/stream")
	defer end()
	h.sends(200, id, message(`SCRIPT[{"text":"one two three four","chunks":4,"chunk_delay_ms":30}]`))
	var seen []json.RawMessage
	shown, preview := "", ""
	for _, f := range next(t, events, "session.status_idle") {
		seen = append(seen, f.data)
		switch field(f.data, "type") {
		case "event_start":
			var p struct{ Event struct{ ID string } }
			_ = json.Unmarshal(f.data, &p)
			preview = p.Event.ID
		case "event_delta":
			var p struct {
				Delta struct{ Content struct{ Text string } }
			}
			_ = json.Unmarshal(f.data, &p)
			shown += p.Delta.Content.Text
		case "agent.message":
			if field(f.data, "id") != preview {
				t.Errorf("%s was previewed as %s", f.data, preview)
			}
		}
	}
	if shown == "" || !strings.HasPrefix("one two three four", shown) {
		t.Errorf("what was shown is %q", shown)
	}
	if found := order.Stream(seen, []string{"agent.message"}); len(found) > 0 {
		t.Error(order.Format(found, seen))
	}
	for _, f := range next(t, plain, "session.status_idle") {
		if strings.HasPrefix(field(f.data, "type"), "event_") {
			t.Errorf("who did not ask was shown %s", f.data)
		}
	}
	h.ask(400, "GET", "/v1/sessions/"+id+"/events/stream?event_deltas[]=agent.tool_use", "")
}

func TestAStreamGoesOnAfterTheLastFrameThatWasSeen(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	events, stop := h.follows(id, "events/stream")
	h.sends(200, id, message("one"), `{"type":"system.message","content":[{"type":"text","text":"x"}]}`)
	seen := next(t, events, "session.status_idle")
	stop()
	for cut := range seen {
		if seen[cut].id == "" {
			continue // the rest of the same event follows
		}
		again, end := h.follows(id, "events/stream", "Last-Event-ID", seen[cut].id)
		for _, want := range seen[cut+1:] {
			got, ok := <-again
			if !ok || string(got.data) != string(want.data) {
				t.Errorf("after frame %d came %s, not %s", cut, got.data, want.data)
			}
		}
		end()
	}
	for _, wrong := range []string{"nonsense", "99999"} {
		if status, _ := h.do("GET", "/v1/sessions/"+id+"/events/stream", "", "Last-Event-ID", wrong); status != 400 {
			t.Errorf("after %s: got %d", wrong, status)
		}
	}
	live, end := h.follows(id, "events/stream")
	defer end()
	h.sends(200, id, message("two"))
	if f := <-live; !strings.Contains(string(f.data), "two") {
		t.Errorf("the first frame is %s", f.data)
	}
}

// What is larger than all that is kept for followers comes from the log.
func TestALargeMessageCutsNobodyOff(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	events, stop := h.follows(id, "events/stream")
	defer stop()
	large := strings.Repeat("x", 7<<20)
	h.sends(200, id, message(large))
	seen := next(t, events, "session.status_idle")
	if got := field(seen[1].data, "type"); len(seen[1].data) < len(large) || got != "user.message" {
		t.Errorf("the second frame is %s of %d bytes", got, len(seen[1].data))
	}
}

func TestThreadsHaveEventsOfTheirOwn(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	other := dormouse.ThreadID("sthr_other")
	do := func(v law.Verb) {
		t.Helper()
		if err := h.sessions.Do(t.Context(), dormouse.SessionID(id), dormouse.User("local"), v); err != nil {
			t.Fatal(err)
		}
	}
	do(law.OpenThread{Thread: other})
	path := "/v1/sessions/" + id + "/threads"
	list := h.ask(200, "GET", path, "")["data"].([]any)
	first, second := list[0].(map[string]any), list[1].(map[string]any)
	if first["parent_thread_id"] != nil || second["parent_thread_id"] != first["id"] || second["id"] != string(other) {
		t.Errorf("the threads are %v", list)
	}
	page := h.ask(200, "GET", path+"?limit=1", "")
	if rest := h.ask(200, "GET", path+"?limit=1&page="+page["next_page"].(string), ""); rest["next_page"] != nil || len(rest["data"].([]any)) != 1 {
		t.Errorf("the second page is %v", rest)
	}
	events, stop := h.follows(id, "threads/sthr_other/stream")
	defer stop()
	content := []dormouse.Block{dormouse.Text(`SCRIPT[{"text":"hm","tool":"ticket","input":{}},{"text":"ok"}]`)}
	do(law.Prompt{Thread: other, ID: "sevt_p", Body: "sha256:x", Content: content})
	next(t, events, "session.thread_status_idle")
	use := h.until(id, "agent.custom_tool_use", 1)
	if field(use, "session_thread_id") != string(other) {
		t.Errorf("the call is shown as %s", use)
	}
	same(t, types(h.listed(id, "order=asc")), "session.thread_created", "session.status_running", "session.thread_status_running",
		"agent.custom_tool_use", "session.thread_status_idle", "session.usage", "session.status_idle")
	h.sends(200, id, fmt.Sprintf(`{"type":"user.custom_tool_result","custom_tool_use_id":%q}`, field(use, "id")))
	seen := next(t, events, "session.thread_status_idle")
	own := h.ask(200, "GET", path+"/sthr_other/events", "")["data"].([]any)
	if len(own) < len(seen) || own[0].(map[string]any)["type"] != "user.message" {
		t.Errorf("its events are %v", own)
	}
	h.ask(400, "POST", path+"/"+first["id"].(string)+"/archive", "")
	if gone := h.ask(200, "POST", path+"/sthr_other/archive", ""); gone["status"] != "terminated" || gone["archived_at"] == nil {
		t.Errorf("it was archived as %v", gone)
	}
	if one := h.ask(200, "GET", path+"?statuses[]=terminated", "")["data"].([]any); len(one) != 1 {
		t.Errorf("there are %v", one)
	}
	h.ask(404, "GET", path+"/sthr_none", "")
	h.ask(404, "GET", path+"/sthr_none/stream", "")
}

// A client that has seen the end and comes back is told that there is nothing more.
func TestAStreamOfWhatHasEndedEnds(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	events, stop := h.follows(id, "events/stream")
	h.ask(200, "POST", "/v1/sessions/"+id+"/archive", "")
	seen := next(t, events, "session.status_terminated")
	stop()
	for _, last := range []string{"0", seen[len(seen)-1].id, ""} {
		again, stop := h.follows(id, "events/stream", "Last-Event-ID", last)
		defer stop()
		for open := true; open; {
			select {
			case _, open = <-again:
			case <-time.After(30 * time.Second):
				t.Fatalf("after %q it goes on", last)
			}
		}
	}
}
