package e2e

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, over := w.create(cold), w.create(cold)
	a.send("taken", a.script(rig.Say("hello")))
	a.rests()
	must(t, over.Command(w.ctx, "terminate", nil))
	before := [][]dormouse.Event{a.log(), over.log()}

	prompts := a.Path("/prompts")
	for _, c := range []struct {
		name, path, body string
		status           int
		kind             string
	}{
		{"malformed JSON", prompts, `{"content": "hi"`, 400, "invalid"},
		{"no JSON at all", prompts, `content=hi`, 400, "invalid"},
		{"two values", prompts, `{"content":"hi"} {"content":"ho"}`, 400, "invalid"},
		{"an empty body", prompts, ``, 400, "invalid"},
		{"no object", prompts, `["hi"]`, 400, "invalid"},
		{"an unknown field", prompts, `{"content":"hi","urgent":true}`, 400, "invalid"},
		{"a field twice", prompts, `{"content":"hi","content":"ho"}`, 400, "invalid"},
		{"a field in another case", prompts, `{"Content":"hi"}`, 400, "invalid"},
		{"a number for content", prompts, `{"content":7}`, 400, "invalid"},
		{"a number for an id", prompts, `{"content":"hi","id":7}`, 400, "invalid"},
		{"no content", prompts, `{"id":"x"}`, 400, "invalid"},
		{"empty content", prompts, `{"content":"  "}`, 400, "invalid"},
		{"an unknown block", prompts, `{"content":[{"type":"smell"}]}`, 400, "invalid"},
		{"an escaped NUL", prompts, `{"content":"a\u0000b"}`, 400, "invalid"},
		{"a bare NUL", prompts, "{\"content\":\"a\x00b\"}", 400, "invalid"},
		{"bad UTF-8", prompts, "{\"content\":\"a\xffb\"}", 400, "invalid"},
		{"an id over its limit", prompts, `{"content":"hi","id":"` + strings.Repeat("x", 129) + `"}`, 400, "invalid"},
		{"content over its limit", prompts, `{"content":"` + strings.Repeat("x", 33<<20) + `"}`, 413, "too_large"},
		{"a body over its limit", prompts, `{"content":"` + strings.Repeat("x", 41<<20) + `"}`, 413, "too_large"},
		{"deep nesting", prompts, `{"content":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, 400, "invalid"},
		{"an id that is taken, another body", prompts, `{"content":"other","id":"taken"}`, 409, "conflict"},
		{"an unknown session", "/api/sessions/sesn_nobody/prompts", `{"content":"hi"}`, 404, "not_found"},
		{"no session id at all", "/api/sessions/..%2f..%2fetc/prompts", `{"content":"hi"}`, 404, "not_found"},
		{"a terminated session", over.Path("/prompts"), `{"content":"hi"}`, 409, "terminated"},
		{"a model nobody has", "/api/sessions", `{"model":"gpt"}`, 400, "invalid"},
		{"a tool nobody has", "/api/sessions", `{"tools":[{"name":"rm"}]}`, 400, "invalid"},
		{"another owner", "/api/sessions", `{"owner":"user:eve"}`, 400, "invalid"},
		{"a sandbox command with a body", a.Path("/wake"), `{"now":true}`, 400, "invalid"},
		{"a flag of another type", a.Path("/interrupt"), `{"flush_queue":"yes"}`, 400, "invalid"},
		{"a thread nobody opened", prompts, `{"content":"hi","thread":"sthr_nobody"}`, 404, "not_found"},
		{"a wake-up without a time", a.Path("/wakeups"), `{"prompt":"hi"}`, 400, "invalid"},
		{"a wake-up that is past", a.Path("/wakeups"), `{"prompt":"hi","at":"2020-01-02T03:04:05Z"}`, 400, "invalid"},
		{"a wake-up of a terminated session", over.Path("/wakeups"), `{"prompt":"hi","in":"1h"}`, 409, "terminated"},
		{"a child of a terminated session", "/api/sessions", `{"parent":"` + string(over.ID) + `"}`, 409, "terminated"},
		{"a tag over its limit", "/api/sessions", `{"tags":["` + strings.Repeat("x", 65) + `"]}`, 400, "invalid"},
		{"a question nobody asked", a.Path("/answers"), `{"tool_use_id":"sevt_nobody","answer":"yes"}`, 409, "conflict"},
		{"an answer nobody waits for", a.Path("/answers"), `{"tool_use_id":"sevt_nobody","result":"allow"}`, 409, "conflict"},
	} {
		_, err := w.Once(w.ctx, http.MethodPost, c.path, []byte(c.body), nil)
		r := rig.Refused(err)
		if r == nil || r.Status != c.status || r.Code != c.kind || len(r.Message) < 10 {
			t.Errorf("%s: got %v, want %d %s and a reason", c.name, err, c.status, c.kind)
		}
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{http.MethodDelete, a.Path("/queue/sevt_nobody"), 404},
		{http.MethodDelete, a.Path("/queue/" + string(dormouse.PromptID(a.ID, "taken"))), 404}, // it has run
		{http.MethodDelete, "/api/sessions", 405},
		{http.MethodDelete, "/api/sessions/sesn_nobody", 404},
		{http.MethodDelete, a.Path("/wakeups/wake_nobody"), 404},
		{http.MethodDelete, a.Path("/children/" + string(over.ID)), 404},
		{http.MethodPut, a.Path(""), 405},
		{http.MethodPut, prompts, 405},
		{http.MethodGet, a.Path("/events?after=-1"), 400},
		{http.MethodGet, a.Path("/events?after=10000"), 400},
		{http.MethodGet, a.Path("/events?limit=many"), 400},
		{http.MethodGet, a.Path("?verbose=true"), 400},
		{http.MethodGet, "/api/sessions?tag=", 400},
		{http.MethodGet, "/api/sessions?text=a%00b", 400},
		{http.MethodGet, "/api/nothing", 404},
	} {
		_, err := w.Once(w.ctx, c.method, c.path, nil, nil)
		if r := rig.Refused(err); r == nil || r.Status != c.status || r.Message == "" {
			t.Errorf("%s %s: got %v, want %d and a reason", c.method, c.path, err, c.status)
		}
	}
	if diff := cmp.Diff(before, [][]dormouse.Event{a.log(), over.log()}); diff != "" {
		t.Errorf("what was refused left its mark: %s", diff)
	}
	var list struct{ Sessions []rig.Shown }
	must(t, w.Get(w.ctx, "/api/sessions", &list))
	if len(list.Sessions) != 2 {
		t.Errorf("there are %d sessions, want the two that were made", len(list.Sessions))
	}
	if w.Lives() != 1 {
		t.Errorf("the server did not survive it")
	}
}

func TestNobodyGetsInWithoutTheToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(cold)
	before := a.log()
	base := "http://" + w.live().Addr()
	for name, change := range map[string]func(*http.Request){
		"no token":           func(r *http.Request) { r.Header.Del("Authorization") },
		"a wrong one":        func(r *http.Request) { r.Header.Set("Authorization", "Bearer dmt_guess") },
		"half of it":         func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+w.Token()[:20]) },
		"in another way":     func(r *http.Request) { r.Header.Set("Authorization", "Basic "+w.Token()) },
		"in the URL":         func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "token=" + w.Token() },
		"a name that is not": func(r *http.Request) { r.Host = "evil.example" },
		"another page": func(r *http.Request) {
			r.Header.Set("Origin", "http://evil.example")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		},
	} {
		r, err := http.NewRequestWithContext(w.ctx, http.MethodPost, base+a.Path("/prompts"), bytes.NewReader([]byte(`{"content":"hi"}`)))
		must(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+w.Token())
		change(r)
		res, err := http.DefaultClient.Do(r)
		must(t, err)
		b, err := io.ReadAll(res.Body)
		must(t, err)
		must(t, res.Body.Close())
		if res.StatusCode < 400 || res.StatusCode >= 500 || bytes.Contains(b, []byte(w.Token())) {
			t.Errorf("%s: %d %s, want a refusal", name, res.StatusCode, b)
		}
	}
	if diff := cmp.Diff(before, a.log()); diff != "" {
		t.Error(diff)
	}
}
