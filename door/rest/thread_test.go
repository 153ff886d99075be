package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

func (h *testServer) threads(path string) []rest.Thread {
	h.t.Helper()
	var answer struct {
		Threads []rest.Thread `json:"threads"`
	}
	h.call(http.MethodGet, path+"/threads", "", http.StatusOK, &answer)
	return answer.Threads
}

// threadIs waits for the n-th thread.
func (h *testServer) threadIs(path string, n int, what string, is func(rest.Thread) bool) {
	h.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(h.threads(path)[n]); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("thread %d is not %s: %+v", n, what, h.threads(path)[n])
		}
	}
}

const (
	waits  = `SCRIPT[{\"tool\":\"bash\",\"input\":{\"command\":\"wait\"}}]`
	speaks = `SCRIPT[{\"text\":\"from beside\"}]`
)

func TestThreadHasItsOwnQueueAndTurn(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"prompt":"` + waits + `"}`)
	h.until(path, dormouse.PhaseRunning)
	var beside, again rest.Thread
	h.call(http.MethodPost, path+"/threads", `{"id":"beside"}`, http.StatusCreated, &beside)
	h.call(http.MethodPost, path+"/threads", `{"id":"beside"}`, http.StatusOK, &again)
	if beside.ID == "" || beside.ID != again.ID || len(h.threads(path)) != 2 {
		t.Fatalf("opened %+v, then %+v", beside, again)
	}
	on := fmt.Sprintf(`,"thread":%q}`, beside.ID)
	var p rest.Prompt
	h.call(http.MethodPost, path+"/prompts", `{"content":"`+speaks+`","id":"a"`+on, http.StatusAccepted, &p)
	h.call(http.MethodPost, path+"/prompts", `{"content":"`+speaks+`","id":"a"`+on, http.StatusOK, nil)
	h.refuses(h.request(http.MethodPost, path+"/prompts", strings.NewReader(`{"content":"`+speaks+`","id":"a"}`)), http.StatusConflict, "another thread")
	h.threadIs(path, 1, "done", func(t rest.Thread) bool { return t.Turn == nil && t.Queue == 0 })
	if words := said(h.events(path, "?limit=1000").Events, beside.ID); !strings.Contains(words, "from beside") {
		t.Errorf("it said %q", words)
	}
	// The primary one is still at work, and what it is sent waits for it alone.
	h.call(http.MethodPost, path+"/prompts", `{"content":"next"}`, http.StatusAccepted, nil)
	all := h.threads(path)
	if all[0].Turn == nil || all[0].Queue != 1 || all[1].ID != beside.ID || all[1].Queue != 0 {
		t.Errorf("threads %+v", all)
	}
	before := h.show(path).Seq
	h.call(http.MethodPost, path+"/interrupt", `{"flush_queue":true`+on, http.StatusOK, nil)
	if s := h.show(path); s.Phase != dormouse.PhaseRunning || s.Queue != 1 || s.Threads[0].Turn == nil || s.Seq != before {
		t.Errorf("an interrupt of the other thread left %+v", s)
	}
	h.call(http.MethodPost, path+"/prompts", `{"content":"`+waits+`"`+on, http.StatusAccepted, nil)
	h.threadIs(path, 1, "at work", func(t rest.Thread) bool { return t.Turn != nil })
	h.call(http.MethodPost, path+"/interrupt", `{"flush_queue":true}`, http.StatusOK, nil)
	if all := h.threads(path); all[0].Turn != nil || all[1].Turn == nil {
		t.Errorf("an interrupt of the primary thread left %+v", all)
	}
	h.call(http.MethodPost, path+"/interrupt", `{`+on[1:], http.StatusOK, nil)
	h.rested(path)
}

// said is everything a thread's agent said.
func said(events []dormouse.Event, thread dormouse.ThreadID) string {
	var b strings.Builder
	for _, e := range events {
		if e.Type == dormouse.AgentMessage && e.Thread == thread {
			b.Write(e.Payload)
		}
	}
	return b.String()
}

func TestThreadThatIsNotThereIsNotFound(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	for _, id := range []string{"sthr_nobody", "x", "sthr_../y"} {
		for route, body := range map[string]string{
			"/prompts": `{"content":"hi","thread":%q}`, "/interrupt": `{"thread":%q}`, "/retry": `{"thread":%q}`, "/continue": `{"thread":%q}`,
		} {
			h.refuses(h.request(http.MethodPost, path+route, strings.NewReader(fmt.Sprintf(body, id))), http.StatusNotFound, fmt.Sprintf("thread %q", id))
		}
	}
	h.refuses(h.request(http.MethodPost, path+"/threads", strings.NewReader(`{"id":"`+strings.Repeat("x", 129)+`"}`)), http.StatusBadRequest, `"id"`)
	h.refuses(h.request(http.MethodPost, path+"/threads", strings.NewReader(`{"name":"x"}`)), http.StatusBadRequest, `"name"`)
	for len(h.threads(path)) < 25 {
		h.call(http.MethodPost, path+"/threads", "", http.StatusCreated, nil)
	}
	h.refuses(h.request(http.MethodPost, path+"/threads", nil), http.StatusConflict, "at most 25 threads")
}
