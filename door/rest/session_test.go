package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

func types(events []dormouse.Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, string(e.Type))
	}
	return all
}

func TestCreateAnswersAtOnceAndTheSandboxComesLater(t *testing.T) {
	h := newServer(t)
	var made rest.Created
	h.call(http.MethodPost, "/api/sessions", `{"title":"a","sleep_after":"1m"}`, http.StatusCreated, &made)
	if made.Phase != dormouse.PhaseCreating || made.Title != "a" || made.Prompt != nil {
		t.Errorf("answered %+v", made)
	}
	s := h.until("/api/sessions/"+string(made.Session), dormouse.PhaseReady)
	if s.Sandbox != (rest.Sandbox{Phase: "active", Generation: 1}) || s.SleepAfter != "1m0s" || s.Recovery != dormouse.RecoverAuto {
		t.Errorf("shows %+v", s)
	}
}

func TestCreateWithoutWarmthStartsNoSandbox(t *testing.T) {
	h := newServer(t)
	s := h.show(h.create(`{"warm":false}`))
	if s.Phase != dormouse.PhaseReady || s.Sandbox.Generation != 0 || s.Sandbox.Phase != "cold" {
		t.Errorf("shows %+v", s)
	}
}

func TestCreateWithAPromptRunsIt(t *testing.T) {
	h := newServer(t)
	var made rest.Created
	h.call(http.MethodPost, "/api/sessions",
		`{"prompt":"SCRIPT[{\"tool\":\"bash\",\"input\":{\"command\":\"ls\"}},{\"text\":\"all done\"}]","prompt_id":"mine"}`, http.StatusCreated, &made)
	if made.Prompt == nil || made.Prompt.Seq == 0 || made.Prompt.ID != dormouse.PromptID(made.Session, "mine") {
		t.Fatalf("answered %+v", made)
	}
	path := "/api/sessions/" + string(made.Session)
	h.rested(path)
	if u := h.show(path).Usage; u.OutputTokens == 0 || u.ListCost != (dormouse.Money{Currency: "USD", Amount: "0"}) {
		t.Errorf("it used %+v", u)
	}
	got := types(h.events(path, "").Events)
	for _, want := range []string{"prompt.queued", "user.message", "agent.tool_use", "agent.tool_result", "agent.message", "session.status_idle"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %v", want, got)
		}
	}
	var ops struct {
		Ops []dormouse.OpRecord `json:"ops"`
	}
	h.call(http.MethodGet, path+"/ops?limit=2", "", http.StatusOK, &ops)
	if len(ops.Ops) != 2 || ops.Ops[0].Kind != dormouse.OpModel || ops.Ops[1].Kind != dormouse.OpExec {
		t.Errorf("ops %+v", ops.Ops)
	}
}

func TestSamePromptIDIsOnePromptHoweverOftenItIsSent(t *testing.T) {
	h := newServer(t)
	path := h.create(`{}`)
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			status, b := h.do(h.request(http.MethodPost, path+"/prompts", strings.NewReader(`{"content":"hello","id":"one"}`)))
			var p rest.Prompt
			if err := json.Unmarshal(b, &p); err != nil || status != http.StatusAccepted && status != http.StatusOK || p.Seq == 0 {
				t.Errorf("%d %s", status, b)
			}
		})
	}
	wait.Wait()
	h.rested(path)
	// How the JSON of the same content is written makes no other prompt.
	for _, body := range []string{`{"content":"hello","id":"one"}`, `{"id":"one", "content":[{"text":"h\u0065llo","type":"text"}]}`} {
		h.call(http.MethodPost, path+"/prompts", body, http.StatusOK, nil)
	}
	h.refuses(h.request(http.MethodPost, path+"/prompts", strings.NewReader(`{"content":"other","id":"one"}`)), http.StatusConflict, "another body")
	n := 0
	for _, e := range h.events(path, "?limit=1000").Events {
		if e.Type == dormouse.UserMessage {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d messages", n)
	}
	h.call(http.MethodPost, path+"/terminate", "", http.StatusOK, nil)
	h.call(http.MethodPost, path+"/prompts", `{"content":"hello","id":"one"}`, http.StatusOK, nil) // accepted is accepted
}

func TestTerminatedSessionTakesNoMore(t *testing.T) {
	h := newServer(t)
	path := h.create(`{}`)
	for range 2 {
		var s rest.Session
		h.call(http.MethodPost, path+"/terminate", `{"reason":"enough"}`, http.StatusOK, &s)
		if s.Phase != dormouse.PhaseTerminated {
			t.Errorf("phase %s", s.Phase)
		}
	}
	h.refuses(h.request(http.MethodPost, path+"/prompts", strings.NewReader(`{"content":"more"}`)), http.StatusConflict, "terminated")
	h.refuses(h.request(http.MethodPost, path+"/wake", nil), http.StatusConflict, "terminated")
	if s := h.show(path); s.Ended != "enough" {
		t.Errorf("ended %q", s.Ended)
	}
	n := 0
	for _, e := range h.events(path, "").Events {
		if e.Type == dormouse.SessionStatusTerminated {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d terminated events", n)
	}
}

func TestQueueShowsWhatWaitsAndCancels(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"prompt":"SCRIPT[{\"tool\":\"bash\",\"input\":{\"command\":\"wait\"}}]"}`)
	h.until(path, dormouse.PhaseRunning)
	var second, third rest.Prompt
	h.call(http.MethodPost, path+"/prompts", `{"content":"the second"}`, http.StatusAccepted, &second)
	h.call(http.MethodPost, path+"/prompts", `{"content":"`+strings.Repeat("ä", 1000)+`"}`, http.StatusAccepted, &third)
	var queue struct {
		Prompts []rest.Queued `json:"prompts"`
	}
	h.call(http.MethodGet, path+"/queue", "", http.StatusOK, &queue)
	if len(queue.Prompts) != 3 || queue.Prompts[0].Status != dormouse.PromptIsProcessing || queue.Prompts[1].Text != "the second" || len(queue.Prompts[2].Text) > 510 {
		t.Fatalf("queue %+v", queue.Prompts)
	}
	if s := h.show(path); s.Queue != 2 || s.Threads[0].Turn == nil {
		t.Errorf("shows %+v", s)
	}
	h.call(http.MethodDelete, path+"/queue/"+string(second.ID), "", http.StatusOK, nil)
	h.refuses(h.request(http.MethodDelete, path+"/queue/"+string(second.ID), nil), http.StatusNotFound, "queued")
	h.refuses(h.request(http.MethodDelete, path+"/queue/x", nil), http.StatusNotFound, "x")
	h.refuses(h.request(http.MethodDelete, path+"/queue/"+string(queue.Prompts[0].ID), nil), http.StatusConflict, "interrupt")
	h.call(http.MethodPost, path+"/interrupt", `{"flush_queue":true}`, http.StatusOK, nil)
	h.rested(path)
	h.call(http.MethodGet, path+"/queue", "", http.StatusOK, &queue)
	if len(queue.Prompts) != 0 {
		t.Errorf("queue %+v", queue.Prompts)
	}
	before := h.show(path).Seq
	h.call(http.MethodPost, path+"/interrupt", "", http.StatusOK, nil)
	if after := h.show(path).Seq; after != before {
		t.Errorf("an interrupt of nothing wrote %d events", after-before)
	}
}

func TestToolCallsWaitForTheirAnswer(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"tools":[{"name":"bash","permission":"ask"}],"custom_tools":[{"name":"lookup","input_schema":{"type":"object"}}],
		"prompt":"SCRIPT[{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"a\"}},{\"name\":\"bash\",\"input\":{\"command\":\"b\"}},{\"name\":\"lookup\",\"input\":{\"key\":1}}]},{\"text\":\"end\"}]"}`)
	s := h.until(path, dormouse.PhaseWaiting)
	waiting := s.Threads[0].Turn.Waiting
	if len(waiting) != 3 || waiting[0].Name != "bash" || string(waiting[1].Input) != `{"command":"b"}` || waiting[2].Gate != dormouse.GateCustom {
		t.Fatalf("waiting %+v", waiting)
	}
	answer := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	h.refuses(h.request(http.MethodPost, path+"/answers", strings.NewReader(answer(`{"tool_use_id":%q,"result":"allow"}`, waiting[2].ID))), http.StatusBadRequest, "result")
	h.call(http.MethodPost, path+"/answers", answer(`{"tool_use_id":%q,"result":"allow"}`, waiting[0].ID), http.StatusOK, nil)
	h.refuses(h.request(http.MethodPost, path+"/answers", strings.NewReader(answer(`{"tool_use_id":%q,"result":"deny"}`, waiting[0].ID))), http.StatusConflict, "")
	h.call(http.MethodPost, path+"/answers", answer(`{"tool_use_id":%q,"result":"deny","deny_message":"no"}`, waiting[1].ID), http.StatusOK, nil)
	h.call(http.MethodPost, path+"/answers", answer(`{"custom_tool_use_id":%q,"content":"42"}`, waiting[2].ID), http.StatusOK, nil)
	h.until(path, dormouse.PhaseReady)
	got := types(h.events(path, "").Events)
	if !slices.Contains(got, "user.custom_tool_result") || !slices.Contains(got, "agent.message") {
		t.Errorf("events %v", got)
	}
}

func TestHibernatedSessionWakes(t *testing.T) {
	h := newServer(t)
	path := h.create(`{}`)
	h.until(path, dormouse.PhaseReady)
	h.call(http.MethodPost, path+"/hibernate", "", http.StatusOK, nil)
	h.until(path, dormouse.PhaseHibernated)
	h.refuses(h.request(http.MethodPost, path+"/hibernate", nil), http.StatusConflict, "hibernated")
	h.call(http.MethodPost, path+"/wake", "", http.StatusOK, nil)
	if s := h.until(path, dormouse.PhaseReady); s.Sandbox.Generation != 2 {
		t.Errorf("generation %d", s.Sandbox.Generation)
	}
}

func TestListGoesThroughPages(t *testing.T) {
	h := newServer(t)
	var want []string
	for range 5 {
		want = append(want, strings.TrimPrefix(h.create(`{"warm":false}`), "/api/sessions/"))
		time.Sleep(time.Millisecond) // the order is that of their making
	}
	slices.Reverse(want)
	var got []string
	after := ""
	for {
		var page rest.Page
		h.call(http.MethodGet, "/api/sessions?limit=2"+after, "", http.StatusOK, &page)
		for _, s := range page.Sessions {
			got = append(got, string(s.Session))
		}
		if page.Next == "" {
			break
		}
		after = "&after=" + string(page.Next)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	var none rest.Page
	h.call(http.MethodGet, "/api/sessions?phase=waiting&limit=100000", "", http.StatusOK, &none)
	if none.Sessions == nil || len(none.Sessions) != 0 {
		t.Errorf("listed %+v", none)
	}
}

func TestPagesOfEventsHaveNoGap(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"prompt":"hello"}`)
	h.rested(path)
	last := h.show(path).Seq
	for _, query := range []string{"", "&all=true"} {
		whole := h.events(path, "?limit=1000"+query)
		if whole.More || whole.Next != last {
			t.Errorf("the whole page: next %d of %d, more %v", whole.Next, last, whole.More)
		}
		var pieces []dormouse.Event
		for after, more := uint64(0), true; more; {
			p := h.events(path, fmt.Sprintf("?limit=3&after=%d%s", after, query))
			if len(p.Events) > 3 {
				t.Errorf("%d events on a page of 3", len(p.Events))
			}
			pieces, after, more = append(pieces, p.Events...), p.Next, p.More
		}
		if got, want := types(pieces), types(whole.Events); !slices.Equal(got, want) {
			t.Errorf("in pieces %v, whole %v", got, want)
		}
	}
	if all := h.events(path, "?all=true&limit=1000"); len(all.Events) != int(last) {
		t.Errorf("%d of %d events", len(all.Events), last)
	}
	for _, e := range h.events(path, "?limit=1000").Events {
		if e.Type.Audience() > dormouse.ForPeople {
			t.Errorf("%s is shown unasked", e.Type)
		}
	}
}
