package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/door/rest"
)

// refused is the body of every refusal.
type refused struct {
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	Request string `json:"request_id"`
}

func (h *testServer) refuses(r *http.Request, status int, says string) {
	h.t.Helper()
	got, b := h.do(r)
	var body refused
	if err := json.Unmarshal(b, &body); err != nil {
		h.t.Fatalf("%s %s: the refusal is not JSON: %s", r.Method, r.URL.Path, b)
	}
	if got != status || !strings.Contains(body.Error.Message, says) || body.Error.Type == "" || body.Request == "" {
		h.t.Errorf("%s %s: %d %s, want %d that says %q", r.Method, r.URL.Path, got, b, status, says)
	}
}

func TestBodiesThatCannotBeMeantAreRefused(t *testing.T) {
	h := newServer(t)
	session := h.create(`{"warm":false}`)
	for name, c := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"an unknown field":             {"/api/sessions", `{"titel":"x"}`, 400, `"titel"`},
		"a field in another case":      {"/api/sessions", `{"Title":"x"}`, 400, `"Title"`},
		"an unknown field further in":  {"/api/sessions", `{"tools":[{"name":"bash","perm":"ask"}]}`, 400, `"perm"`},
		"a field twice":                {"/api/sessions", `{"title":"x","title":"y"}`, 400, "twice"},
		"an unknown limit":             {"/api/sessions", `{"environment":{"limits":{"gpus":1}}}`, 400, `"gpus"`},
		"a limit twice":                {"/api/sessions", `{"environment":{"limits":{"pids":20,"pids":21}}}`, 400, "twice"},
		"a limit in words":             {"/api/sessions", `{"environment":{"limits":{"memory":"1G"}}}`, 400, `"environment.limits.memory" must be a number`},
		"a limit below the least":      {"/api/sessions", `{"environment":{"limits":{"memory":1}}}`, 400, "limits.memory is 1; it must be between"},
		"half a network":               {"/api/sessions", `{"environment":{"network":"maybe"}}`, 400, "it must be on, limited or off"},
		"an image where all are alike": {"/api/sessions", `{"environment":{"image":"dir:/etc"}}`, 400, "all alike"},
		"an owner":                     {"/api/sessions", `{"owner":"user:eve"}`, 400, `"owner"`},
		"a tenant":                     {"/api/sessions", `{"tenant":"other"}`, 400, `"tenant"`},
		"a session id":                 {"/api/sessions", `{"session":"sesn_mine"}`, 400, `"session"`},
		"a number for a string":        {"/api/sessions", `{"title":3}`, 400, `"title" must be a string`},
		"a string for a flag":          {"/api/sessions", `{"warm":"no"}`, 400, `"warm" must be true or false`},
		"a string for a list":          {"/api/sessions", `{"tools":"bash"}`, 400, `"tools" must be a list`},
		"a list for an object":         {"/api/sessions", `[]`, 400, "object"},
		"null":                         {"/api/sessions", `null`, 400, "object"},
		"trailing data":                {"/api/sessions", `{} {}`, 400, "after"},
		"trailing words":               {"/api/sessions", `{}x`, 400, "after"},
		"half an object":               {"/api/sessions", `{"title":`, 400, "not JSON"},
		"no JSON":                      {"/api/sessions", `title=x`, 400, "not JSON"},
		"bad UTF-8":                    {"/api/sessions", "{\"title\":\"\xff\"}", 400, "UTF-8"},
		"a NUL":                        {"/api/sessions", "{\"title\":\"a\\u0000b\"}", 400, "NUL"},
		"a NUL in a name":              {"/api/sessions", "{\"title\\u0000\":\"b\"}", 400, "NUL"},
		"a bare NUL":                   {"/api/sessions", "{\"title\":\"a\x00b\"}", 400, "not JSON"},
		"an unknown recovery":          {"/api/sessions", `{"recovery":"maybe"}`, 400, "recovery"},
		"an unknown permission":        {"/api/sessions", `{"tools":[{"name":"bash","permission":"never"}]}`, 400, "permission"},
		"a duration that is none":      {"/api/sessions", `{"sleep_after":"soon"}`, 400, "sleep_after"},
		"a negative duration":          {"/api/sessions", `{"sleep_after":"-1s"}`, 400, "sleep_after"},
		"a title that is too long":     {"/api/sessions", `{"title":"` + strings.Repeat("x", 501) + `"}`, 413, "title"},
		"a parent that is not there":   {"/api/sessions", `{"parent":"sesn_nobody"}`, 404, "parent"},
		"an empty prompt":              {"/api/sessions", `{"prompt":" "}`, 400, "empty"},
		"a prompt that is a number":    {"/api/sessions", `{"prompt":3}`, 400, `"prompt" must be a string or a list`},
		"an id without a prompt":       {"/api/sessions", `{"prompt_id":"a"}`, 400, "prompt_id"},
		"a prompt id that is too long": {"/api/sessions", `{"prompt":"hi","prompt_id":"` + strings.Repeat("x", 129) + `"}`, 400, "prompt_id"},

		"no content":                 {session + "/prompts", `{}`, 400, `"content" is missing`},
		"content that is null":       {session + "/prompts", `{"content":null}`, 400, `"content" is missing`},
		"no body":                    {session + "/prompts", ``, 400, `"content" is missing`},
		"no blocks":                  {session + "/prompts", `{"content":[]}`, 400, "empty"},
		"an unknown block":           {session + "/prompts", `{"content":[{"type":"video"}]}`, 400, "video"},
		"an unknown field in blocks": {session + "/prompts", `{"content":[{"type":"text","text":"x","role":"system"}]}`, 400, `"role"`},
		"a long id":                  {session + "/prompts", `{"content":"x","id":"` + strings.Repeat("x", 129) + `"}`, 400, `"id"`},
		"too much content":           {session + "/prompts", `{"content":"` + strings.Repeat("x", 33<<20) + `"}`, 413, "content"},
		"a bottomless body":          {session + "/prompts", `{"content":` + strings.Repeat("[", 15<<20), 400, "deep"},
		"a bottomless object":        {session + "/prompts", strings.Repeat(`{"content":`, 1<<20), 400, "deep"},
		"too much of a body":         {session + "/prompts", `{"content":"` + strings.Repeat("x", 41<<20) + `"}`, 413, "body"},

		"a body where none belongs":   {session + "/wake", `{"now":true}`, 400, `"now"`},
		"a flag of the wrong type":    {session + "/interrupt", `{"flush_queue":1}`, 400, "flush_queue"},
		"an answer to nothing":        {session + "/answers", `{}`, 400, "tool_use_id"},
		"an answer to both":           {session + "/answers", `{"tool_use_id":"sevt_a","custom_tool_use_id":"sevt_b"}`, 400, "either"},
		"an answer that is neither":   {session + "/answers", `{"tool_use_id":"sevt_a","result":"maybe"}`, 400, "allow"},
		"an answer without content":   {session + "/answers", `{"custom_tool_use_id":"sevt_a"}`, 400, "content"},
		"an answer to what is no id":  {session + "/answers", `{"tool_use_id":"../x","result":"allow"}`, 400, "tool call"},
		"an answer nobody waits for":  {session + "/answers", `{"tool_use_id":"sevt_a","result":"allow"}`, 409, "waits"},
		"nothing to retry":            {session + "/retry", ``, 409, "nothing to retry"},
		"nothing to continue":         {session + "/continue", ``, 409, "no turn"},
		"nothing to hibernate":        {session + "/hibernate", ``, 409, "hibernate"},
		"a session that is not there": {"/api/sessions/sesn_nobody/prompts", `{"content":"hi"}`, 404, "not found"},
		"a session that cannot be":    {"/api/sessions/x%2f..%2fy/prompts", `{"content":"hi"}`, 404, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			h := *h
			h.t = t
			h.refuses(h.request(http.MethodPost, c.path, body), c.status, c.says)
		})
	}
	var list rest.Page
	h.call(http.MethodGet, "/api/sessions", "", http.StatusOK, &list)
	if len(list.Sessions) != 1 {
		t.Errorf("%d sessions: a refused request made one", len(list.Sessions))
	}
}

func TestParametersThatCannotBeMeantAreRefused(t *testing.T) {
	h := newServer(t)
	session := h.create(`{"warm":false}`)
	for _, path := range []string{
		"/api/sessions?limit=0", "/api/sessions?limit=-1", "/api/sessions?limit=x", "/api/sessions?limit=", "/api/sessions?phase=asleep",
		"/api/sessions?phase=", "/api/sessions?after=sesn_nobody", "/api/sessions?token=dmt_x", "/api/sessions?limit=1&limit=2",
		session + "?x=1", session + "/queue?x=1", session + "/ops?limit=no",
		session + "/events?after=-1", session + "/events?after=x", session + "/events?after=99999999999999999999",
		session + "/events?after=1000000", session + "/events?follow=true&after=1000000", session + "/events?all=perhaps",
	} {
		h.refuses(h.request(http.MethodGet, path, nil), http.StatusBadRequest, "")
	}
	r := h.request(http.MethodGet, session+"/events?follow=true", nil)
	r.Header.Set("Last-Event-ID", "1000000")
	h.refuses(r, http.StatusBadRequest, "beyond the log")
	r.Header.Set("Last-Event-ID", "x")
	h.refuses(r, http.StatusBadRequest, "Last-Event-ID")
}

func TestOnlyJSONIsTaken(t *testing.T) {
	h := newServer(t)
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json; charset=latin1", "application/jsonp", ";"} {
		r := h.request(http.MethodPost, "/api/sessions", strings.NewReader(`{}`))
		r.Header.Set("Content-Type", kind)
		h.refuses(r, http.StatusUnsupportedMediaType, "application/json")
	}
	r := h.request(http.MethodPost, "/api/sessions", strings.NewReader(`{}`))
	r.Header.Set("Content-Encoding", "gzip")
	h.refuses(r, http.StatusUnsupportedMediaType, "compressed")
	for _, kind := range []string{"application/json", "application/json; charset=UTF-8", "Application/JSON"} {
		r := h.request(http.MethodPost, "/api/sessions", strings.NewReader(`{"warm":false}`))
		r.Header.Set("Content-Type", kind)
		if status, b := h.do(r); status != http.StatusCreated {
			t.Errorf("%q: %d %s", kind, status, b)
		}
	}
}

func TestRoutesAndMethodsThatAreNotThereAreRefused(t *testing.T) {
	h := newServer(t)
	session := h.create(`{"warm":false}`)
	for _, path := range []string{"/", "/api", "/api/", "/api/session", session + "/nothing", session + "/", "/v2/x"} {
		h.refuses(h.request(http.MethodGet, path, nil), http.StatusNotFound, "route")
	}
	for _, c := range [][2]string{
		{http.MethodDelete, "/api/sessions"},
		{http.MethodPut, session},
		{http.MethodGet, session + "/prompts"},
		{http.MethodGet, session + "/terminate"},
		{http.MethodPost, session + "/events"},
		{http.MethodPost, "/healthz"},
	} {
		r := h.request(c[0], c[1], nil)
		h.refuses(r, http.StatusMethodNotAllowed, "takes")
		r.Header.Set("X-HTTP-Method-Override", http.MethodPost)
		h.refuses(r, http.StatusMethodNotAllowed, "takes")
	}
}

func TestNothingButHealthIsToldWithoutTheToken(t *testing.T) {
	h := newServer(t)
	session := h.create(`{"warm":false}`)
	for _, path := range []string{"/api/sessions", session, session + "/events", session + "/events?follow=true", "/metrics", "/nothing", "/api/sessions/sesn_nobody"} {
		for _, header := range []string{"", "Bearer wrong", "Basic " + h.token, h.token} {
			r := h.request(http.MethodGet, path, nil)
			r.Header.Set("Authorization", header)
			h.refuses(r, http.StatusUnauthorized, "token")
		}
	}
	r := h.request(http.MethodGet, "/api/sessions?token="+h.token, nil)
	r.Header.Del("Authorization")
	h.refuses(r, http.StatusUnauthorized, "token")
	r = h.request(http.MethodGet, "/api/sessions", nil)
	r.Header.Del("Authorization")
	r.AddCookie(&http.Cookie{Name: "token", Value: h.token, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	h.refuses(r, http.StatusUnauthorized, "token")
	for _, path := range []string{"/healthz", "/readyz"} {
		r := h.request(http.MethodGet, path, nil)
		r.Header.Del("Authorization")
		if status, b := h.do(r); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, b)
		}
	}
}

func TestPagesElsewhereCannotReachTheServer(t *testing.T) {
	h := newServer(t, func(c *rest.Config) { c.Hosts = []string{"dormouse.example"} })
	own := strings.TrimPrefix(h.url, "http://")
	for name, c := range map[string]struct {
		host, origin, site string
		status             int
	}{
		"no browser":                   {own, "", "", 200},
		"by name":                      {"localhost:7717", "", "", 200},
		"by the other loopback":        {"[::1]:7717", "", "", 200},
		"by another loopback address":  {"127.9.9.9", "", "", 200},
		"by the configured name":       {"Dormouse.Example:80", "", "", 200},
		"its own page":                 {own, "http://" + own, "same-origin", 200},
		"typed by a person":            {own, "", "none", 200},
		"a name pointed here":          {"evil.example:7717", "", "", 403},
		"a name that looks like ours":  {"localhost.evil.example", "", "", 403},
		"an address that is not ours":  {"192.0.2.7", "", "", 403},
		"no host":                      {" ", "", "", 403},
		"a page elsewhere":             {own, "http://evil.example", "", 403},
		"a page without origin":        {own, "null", "", 403},
		"a page on another port":       {own, "http://127.0.0.1:1", "", 403},
		"a page that says so":          {own, "", "cross-site", 403},
		"a page of a sibling":          {own, "", "same-site", 403},
		"an origin that merely begins": {own, "http://" + own + ".evil.example", "", 403},
	} {
		t.Run(name, func(t *testing.T) {
			r := h.request(http.MethodGet, "/api/sessions", nil)
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			if c.site != "" {
				r.Header.Set("Sec-Fetch-Site", c.site)
			}
			res, err := h.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if b, _ := io.ReadAll(res.Body); res.StatusCode != c.status {
				t.Errorf("%d, want %d: %s", res.StatusCode, c.status, b)
			}
		})
	}
}

func TestServerThatIsNotReadySaysWhy(t *testing.T) {
	why := io.ErrClosedPipe
	h := newServer(t, func(c *rest.Config) {
		c.Ready = func(context.Context) error { return why }
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, bytes.NewReader([]byte("up 1\n"))) })
	})
	h.refuses(h.request(http.MethodGet, "/readyz", nil), http.StatusServiceUnavailable, why.Error())
	stranger := h.request(http.MethodGet, "/readyz", nil)
	stranger.Header.Del("Authorization")
	status, b := h.do(stranger)
	if status != http.StatusServiceUnavailable || !strings.Contains(string(b), `"message":"not ready"`) || strings.Contains(string(b), why.Error()) {
		t.Errorf("a stranger is told %d %s", status, b)
	}
	if status, b := h.do(h.request(http.MethodGet, "/metrics", nil)); status != http.StatusOK || string(b) != "up 1\n" {
		t.Errorf("metrics: %d %s", status, b)
	}
}

// To know whether a server is ready takes a write to the database, which no stranger
// is given for the asking.
func TestStrangersDoNotHaveTheDatabaseWrittenToByAsking(t *testing.T) {
	var looks atomic.Int64
	h := newServer(t, func(c *rest.Config) { c.Ready = func(context.Context) error { looks.Add(1); return nil } })
	began := time.Now()
	const requests = 300
	for i := range requests {
		r := h.request(http.MethodGet, "/readyz", nil)
		if r.Header.Del("Authorization"); i%2 == 0 {
			r.Header.Set("Authorization", "Bearer wrong")
		}
		if status, b := h.do(r); status != http.StatusOK {
			t.Fatalf("told %d %s", status, b)
		}
	}
	if n, most := looks.Load(), 1+int64(time.Since(began)/time.Second); n > most {
		t.Errorf("looked %d times for %d requests, at most %d are due", n, requests, most)
	}
	before := looks.Load()
	for range 3 { // a client with the token gets the current answer
		h.do(h.request(http.MethodGet, "/readyz", nil))
	}
	if n := looks.Load() - before; n != 3 {
		t.Errorf("looked %d times for three requests with the token", n)
	}
}

func TestPanicIsA500AndTheServerGoesOn(t *testing.T) {
	h := newServer(t, func(c *rest.Config) { c.Ready = func(context.Context) error { panic("a bug") } })
	h.refuses(h.request(http.MethodGet, "/readyz", nil), http.StatusInternalServerError, "internal")
	h.create(`{"warm":false}`)
}

func TestStrangersCannotFillTheLog(t *testing.T) {
	var out logBuffer
	h := newServer(t, func(c *rest.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&out, nil))
		c.Ready = func(context.Context) error { return errors.New("the database is away") }
	})
	const requests = 500
	for range requests {
		for _, path := range []string{"/api/sessions", "/readyz"} {
			r := h.request(http.MethodGet, path, nil)
			r.Header.Set("Authorization", "Bearer wrong")
			h.do(r)
		}
	}
	text := out.String()
	if n := strings.Count(text, "\n"); n > requests/4 || !strings.Contains(text, `msg="token refused"`) || !strings.Contains(text, "the database is away") {
		t.Errorf("%d lines:\n%.2000s", n, text)
	}
}

// logBuffer may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
