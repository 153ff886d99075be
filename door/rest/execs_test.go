package rest_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/door/rest"
	"github.com/dormouse-run/dormouse/sandbox/local/localtest"
)

func TestACommandOverHTTP(t *testing.T) {
	h := newServerOn(t, localtest.Open(t))
	path := h.create(`{}`) + "/execs"
	var e rest.Exec
	for range 2 { // the same id is the same command
		h.call(http.MethodPost, path, `{"id":"one","command":"echo x >>acts; printf 'a\\377b'; exit 3"}`, http.StatusOK, &e)
		if e.Exit != 3 || string(e.Raw) != "a\xffb" {
			t.Errorf("it ended as %+v", e)
		}
	}
	var acts, late rest.Exec
	h.call(http.MethodPost, path, `{"command":"wc -l <acts","shell":"mine"}`, http.StatusOK, &acts)
	if strings.TrimSpace(acts.Output) != "1" || acts.Raw != nil {
		t.Errorf("it ran %+v times", acts)
	}
	h.call(http.MethodPost, path, `{"command":"sleep 1000","timeout":"50ms"}`, http.StatusOK, &late)
	if !late.TimedOut {
		t.Errorf("too long, it ended as %+v", late)
	}
}

// onWrite calls itself with what is written.
type onWrite func()

func (f onWrite) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

func TestACommandWhoseServerClosesIsToldWithTheCode(t *testing.T) {
	h := newServerOn(t, localtest.Open(t))
	id := dormouse.SessionID(strings.TrimPrefix(h.create(`{}`), "/api/sessions/"))
	c, err := client.New(client.Options{URL: h.url, Token: h.token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	_, err = c.Exec(t.Context(), id, client.ExecOptions{Command: "echo a; sleep 1000"}, onWrite(sync.OnceFunc(h.sessions.EndFollowers)))
	if !errors.Is(err, dormouse.ErrClosing) || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("it ended with %v", err)
	}
}

func TestACommandThatCannotBeMeantIsRefused(t *testing.T) {
	h := newServer(t)
	path := h.create(`{}`) + "/execs"
	for _, body := range []string{
		`{}`, `{"command":""}`, `{"command":"true","timeout":"soon"}`, `{"command":"true","timeout":"-1s"}`, `{"command":"true","timeout":"48h"}`,
		`{"command":"true","shell":"a/b"}`, `{"command":"true","gently":true}`, `{"command":"` + strings.Repeat("x", 1<<20+1) + `"}`,
	} {
		status, answer := h.do(h.request(http.MethodPost, path, strings.NewReader(body)))
		if status < 400 || status >= 500 {
			t.Errorf("%.60s is answered with %d %.200s", body, status, answer)
		}
	}
	h.call(http.MethodDelete, path+"/sevt_nothing", "", http.StatusNotFound, nil)
}
