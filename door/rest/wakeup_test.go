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

func (h *testServer) wakeups(path string) []rest.Wakeup {
	h.t.Helper()
	var answer struct {
		Wakeups []rest.Wakeup `json:"wakeups"`
	}
	h.call(http.MethodGet, path+"/wakeups", "", http.StatusOK, &answer)
	return answer.Wakeups
}

func TestWakeupIsScheduledListedAndCancelled(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	if all := h.wakeups(path); all == nil || len(all) != 0 {
		t.Errorf("listed %+v", all)
	}
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	var made [3]rest.Wakeup
	for i, body := range []string{
		fmt.Sprintf(`{"at":%q,"prompt":"at"}`, at.Format(time.RFC3339)), `{"in":"10m","prompt":[{"type":"text","text":"in"}]}`, `{"cron":"0 9 * * 1","prompt":"cron"}`,
	} {
		h.call(http.MethodPost, path+"/wakeups", body, http.StatusCreated, &made[i])
	}
	if !made[0].At.Equal(at) || made[2].Cron != "0 9 * * 1" || made[2].At.Weekday() != time.Monday || made[2].At.Hour() != 9 {
		t.Errorf("scheduled %+v", made)
	}
	if until := time.Until(made[1].At); until < 9*time.Minute || until > 10*time.Minute {
		t.Errorf("in 10m is in %s", until)
	}
	all := h.wakeups(path)
	for i, want := range []string{"at", "in", "cron"} {
		if len(all) != 3 || all[i].Text != want || all[i].ID != made[i].ID || !all[i].At.Equal(made[i].At) || all[i].Thread != h.show(path).Threads[0].ID {
			t.Fatalf("listed %+v", all)
		}
	}
	if s := h.show(path); len(s.Wakeups) != 3 || s.Wakeups[2].ID != made[2].ID {
		t.Errorf("shown %+v", s.Wakeups)
	}
	h.call(http.MethodDelete, path+"/wakeups/"+string(made[1].ID), "", http.StatusOK, nil)
	h.refuses(h.request(http.MethodDelete, path+"/wakeups/"+string(made[1].ID), nil), http.StatusNotFound, "no wake-up")
	h.refuses(h.request(http.MethodDelete, path+"/wakeups/x", nil), http.StatusNotFound, `"x"`)
	if all := h.wakeups(path); len(all) != 2 {
		t.Errorf("listed %+v", all)
	}
}

func TestWakeupFiresItsPrompt(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	var thread rest.Thread
	h.call(http.MethodPost, path+"/threads", `{}`, http.StatusCreated, &thread)
	h.call(http.MethodPost, path+"/wakeups", fmt.Sprintf(`{"in":"1ms","prompt":"time is up","thread":%q}`, thread.ID), http.StatusCreated, nil)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		for _, e := range h.events(path, "?limit=1000").Events {
			if e.Type == dormouse.UserMessage && e.Thread == thread.ID && strings.Contains(string(e.Payload), "time is up") {
				if all := h.wakeups(path); len(all) != 0 {
					t.Errorf("still scheduled: %+v", all)
				}
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("it has not fired")
		}
	}
}

func TestSameWakeupIDIsOneWakeup(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	body := fmt.Sprintf(`{"at":%q,"prompt":"hi","id":"mine"}`, at)
	var first, again rest.Wakeup
	h.call(http.MethodPost, path+"/wakeups", body, http.StatusCreated, &first)
	h.call(http.MethodPost, path+"/wakeups", body, http.StatusOK, &again)
	if first.ID != again.ID || !first.At.Equal(again.At) || len(h.wakeups(path)) != 1 {
		t.Errorf("scheduled %+v, then %+v", first, again)
	}
	for _, status := range []int{http.StatusCreated, http.StatusOK} { // sent again it would be for another time
		h.call(http.MethodPost, path+"/wakeups", `{"in":"30m","prompt":"hi","id":"soon"}`, status, nil)
	}
	if n := len(h.wakeups(path)); n != 2 {
		t.Errorf("%d wake-ups are scheduled, want 2", n)
	}
	for _, other := range []string{
		fmt.Sprintf(`{"at":%q,"prompt":"ho","id":"mine"}`, at), `{"cron":"* * * * *","prompt":"hi","id":"mine"}`,
		fmt.Sprintf(`{"at":%q,"prompt":"hi","id":"mine"}`, time.Now().Add(2*time.Hour).Format(time.RFC3339)),
		`{"in":"30m","prompt":"hi","id":"mine"}`, `{"in":"31m","prompt":"hi","id":"soon"}`,
	} {
		h.refuses(h.request(http.MethodPost, path+"/wakeups", strings.NewReader(other)), http.StatusConflict, "otherwise")
	}
}

// A client that does not hear the answer sends it again, and by then it may have fired.
func TestAWakeupThatHasFiredIsTheSameWhenItIsSentAgain(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	const body = `{"in":"1ms","prompt":"time is up","id":"mine"}`
	var first, again rest.Wakeup
	h.call(http.MethodPost, path+"/wakeups", body, http.StatusCreated, &first)
	fired := func() (n int) {
		for _, e := range h.events(path, "?limit=1000").Events {
			if e.Type == dormouse.UserMessage && strings.Contains(string(e.Payload), "time is up") {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(10 * time.Second); fired() == 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it has not fired")
		}
	}
	h.call(http.MethodPost, path+"/wakeups", body, http.StatusOK, &again)
	if first.ID != again.ID || !first.At.Equal(again.At) || len(h.wakeups(path)) != 0 || fired() != 1 {
		t.Errorf("scheduled %+v, then %+v; it fired %d times", first, again, fired())
	}
}

func TestThereAreAtMostTwentyWakeups(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	var last rest.Wakeup
	for range dormouse.MaxWakeups {
		h.call(http.MethodPost, path+"/wakeups", `{"in":"1h","prompt":"hi"}`, http.StatusCreated, &last)
	}
	more := func() *http.Request {
		return h.request(http.MethodPost, path+"/wakeups", strings.NewReader(`{"in":"1h","prompt":"one more"}`))
	}
	h.refuses(more(), http.StatusConflict, "20 wake-ups are scheduled already; cancel one first")
	h.call(http.MethodDelete, path+"/wakeups/"+string(last.ID), "", http.StatusOK, nil)
	if status, b := h.do(more()); status != http.StatusCreated {
		t.Errorf("%d %s", status, b)
	}
}

func TestWakeupsThatCannotBeMeantAreRefused(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	for name, c := range map[string]struct {
		body   string
		status int
		says   string
	}{
		"no time":                    {`{"prompt":"hi"}`, 400, "one of"},
		"two times":                  {`{"in":"1h","cron":"* * * * *","prompt":"hi"}`, 400, "one of"},
		"three times":                {`{"in":"1h","at":"2030-01-02T03:04:05Z","cron":"* * * * *","prompt":"hi"}`, 400, "one of"},
		"no prompt":                  {`{"in":"1h"}`, 400, `"prompt" is missing`},
		"an empty prompt":            {`{"in":"1h","prompt":""}`, 400, "empty"},
		"a time that is none":        {`{"at":"tomorrow","prompt":"hi"}`, 400, `"at"`},
		"a time without a zone":      {`{"at":"2030-01-02T03:04:05","prompt":"hi"}`, 400, `"at"`},
		"the beginning of time":      {`{"at":"0001-01-01T00:00:00Z","prompt":"hi"}`, 400, `"at"`},
		"a time that has passed":     {`{"at":"2020-01-02T03:04:05Z","prompt":"hi"}`, 400, "passed"},
		"a time nobody will live":    {`{"at":"9999-12-31T23:59:59-23:59","prompt":"hi"}`, 400, "366 days"},
		"a duration that is none":    {`{"in":"soon","prompt":"hi"}`, 400, `"in"`},
		"a duration of nothing":      {`{"in":"0s","prompt":"hi"}`, 400, `"in"`},
		"a duration back":            {`{"in":"-1h","prompt":"hi"}`, 400, `"in"`},
		"a duration that is a life":  {`{"in":"99999h","prompt":"hi"}`, 400, "366 days"},
		"a cron line that is none":   {`{"cron":"every day","prompt":"hi"}`, 400, "cron"},
		"a cron line with a zone":    {`{"cron":"TZ=Asia/Tokyo 0 9 * * *","prompt":"hi"}`, 400, "cron"},
		"a cron line of no day":      {`{"cron":"0 0 30 2 *","prompt":"hi"}`, 400, "no time"},
		"a long name":                {`{"in":"1h","prompt":"hi","id":"` + strings.Repeat("x", 129) + `"}`, 400, `"id"`},
		"an unknown field":           {`{"in":"1h","prompt":"hi","repeat":true}`, 400, `"repeat"`},
		"a thread that is not there": {`{"in":"1h","prompt":"hi","thread":"sthr_nobody"}`, 404, `thread "sthr_nobody"`},
		"a thread that cannot be":    {`{"in":"1h","prompt":"hi","thread":"../x"}`, 404, "thread"},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.t = t
			h.refuses(h.request(http.MethodPost, path+"/wakeups", strings.NewReader(c.body)), c.status, c.says)
		})
	}
	if all := h.wakeups(path); len(all) != 0 {
		t.Errorf("a refused request scheduled %+v", all)
	}
	h.call(http.MethodPost, path+"/terminate", "", http.StatusOK, nil)
	h.refuses(h.request(http.MethodPost, path+"/wakeups", strings.NewReader(`{"in":"1h","prompt":"hi"}`)), http.StatusConflict, "terminated")
}
