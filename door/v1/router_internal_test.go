package v1

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// frame is a door with routes that are only there to be refused.
func frame(t testing.TB, logs io.Writer) (s *Server, token string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	who, err := auth.OpenLocal(file)
	if err != nil {
		t.Fatal(err)
	}
	if token, err = auth.ReadToken(file); err != nil {
		t.Fatal(err)
	}
	s = New(Config{Auth: who, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	s.handle("/v1/echo", methods{http.MethodPost: func(c call) error {
		var body struct {
			Name  string                   `json:"name"`
			Count closedjson.Optional[int] `json:"count"`
		}
		if err := c.decode(&body); err != nil {
			return err
		}
		return c.Answer(http.StatusOK, map[string]any{"name": body.Name, "count": body.Count.Or(-1)})
	}})
	s.handle("/v1/fail", methods{http.MethodGet: func(c call) error {
		return failures[c.R.URL.Query().Get("with")]
	}})
	s.handle("/v1/panic", methods{http.MethodGet: func(call) error { panic("a bug") }})
	return s, token
}

var failures = map[string]error{
	"not found":   fmt.Errorf("agent x: %w", dormouse.ErrNotFound),
	"invalid":     fmt.Errorf("name: %w", dormouse.ErrInvalid),
	"conflict":    fmt.Errorf("version: %w", dormouse.ErrConflict),
	"state":       wrongState(fmt.Errorf("it is running: %w", dormouse.ErrConflict)),
	"other state": wrongState(dormouse.ErrNotFound),
	"terminated":  dormouse.ErrTerminated,
	"unknown":     dormouse.ErrUnknownOutcome,
	"closing":     dormouse.ErrClosing,
	"full":        dormouse.ErrFull,
	"large":       dormouse.ErrTooLarge,
	"surprise":    errors.New("the password is hunter2"),
	"coded":       codedError{},
}

type codedError struct{}

func (codedError) Error() string     { return "the type cannot change" }
func (codedError) ErrorCode() string { return "invalid_config_type_change" }
func (codedError) Unwrap() error     { return dormouse.ErrInvalid }

type failure struct {
	Type  string
	Error struct {
		Type, Message string
		Details       *struct {
			Code string `json:"error_code"`
		}
	}
	Request string `json:"request_id"`
}

// ask sends a request, and checks what every reply has.
func ask(t testing.TB, s *Server, r *http.Request) (*httptest.ResponseRecorder, failure) {
	t.Helper()
	r.Host = "127.0.0.1:7717"
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if kind := w.Header().Get("Content-Type"); kind != "application/json" {
		t.Errorf("%s %s: content type %q", r.Method, r.URL, kind)
	}
	id := w.Header().Get("Request-Id")
	if !strings.HasPrefix(id, "req_") {
		t.Errorf("%s %s: request id %q", r.Method, r.URL, id)
	}
	var f failure
	if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil {
		t.Fatalf("%s %s: %v: %s", r.Method, r.URL, err, w.Body)
	}
	if w.Code != http.StatusOK && (f.Type != "error" || f.Request != id || f.Error.Type == "" || f.Error.Message == "") {
		t.Errorf("%s %s: %s", r.Method, r.URL, w.Body)
	}
	if w.Code == http.StatusConflict && w.Header().Get("X-Should-Retry") != "false" {
		t.Errorf("%s %s: a conflict that clients send again", r.Method, r.URL)
	}
	return w, f
}

func request(method, target, body, token string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func TestBothGenerationsOfClientsAreRecognized(t *testing.T) {
	s, token := frame(t, io.Discard)
	for _, c := range []struct {
		name, key, bearer, version string
		status                     int
	}{
		{"older", token, "", "2023-06-01", 200},
		{"newer", "", token, "2026-10-21", 200},
		{"no version", "", token, "", 200},
		{"both, one of them for somebody else", "sk-other", token, "", 200},
		{"another version", "", token, "2019-01-01", 400},
		{"wrong key", token[1:], "", "2023-06-01", 401},
		{"wrong bearer", "", token + "x", "2026-10-21", 401},
		{"nothing", "", "", "2026-10-21", 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request("POST", "/v1/echo?beta=true", `{"name":"x"}`, "")
			r.Header.Del("Authorization")
			r.Header.Set("Anthropic-Beta", "unheard-of-2030-01-01,managed-agents-2026-04-01")
			for name, value := range map[string]string{"X-Api-Key": c.key, "Anthropic-Version": c.version} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			if c.bearer != "" {
				r.Header.Set("Authorization", "Bearer "+c.bearer)
			}
			if w, _ := ask(t, s, r); w.Code != c.status {
				t.Errorf("got %d: %s", w.Code, w.Body)
			}
		})
	}
}

func TestErrorsHaveTheShapeOfTheAPI(t *testing.T) {
	logs := new(strings.Builder)
	s, token := frame(t, logs)
	for with, want := range map[string]struct {
		status      int
		kind, retry string
	}{
		"not found":   {404, "not_found_error", ""},
		"invalid":     {400, "invalid_request_error", ""},
		"conflict":    {409, "conflict_error", "false"},
		"state":       {400, "invalid_request_error", ""},
		"other state": {404, "not_found_error", ""},
		"terminated":  {400, "invalid_request_error", ""},
		"unknown":     {503, "api_error", "false"},
		"closing":     {503, "api_error", ""},
		"full":        {507, "api_error", ""},
		"large":       {413, "request_too_large", ""},
		"surprise":    {500, "api_error", ""},
		"coded":       {400, "invalid_request_error", ""},
	} {
		r := request("GET", "/v1/fail", "", token)
		r.URL.RawQuery = "with=" + strings.ReplaceAll(with, " ", "+")
		w, f := ask(t, s, r)
		if w.Code != want.status || f.Error.Type != want.kind || w.Header().Get("X-Should-Retry") != want.retry {
			t.Errorf("%s: %d %q %s", with, w.Code, w.Header().Get("X-Should-Retry"), w.Body)
		}
		if strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("%s tells what is inside: %s", with, w.Body)
		}
		if with == "coded" && (f.Error.Details == nil || f.Error.Details.Code != "invalid_config_type_change") {
			t.Errorf("%s: %s", with, w.Body)
		}
	}
	if !strings.Contains(logs.String(), "hunter2") {
		t.Error("the log does not say what went wrong")
	}
}

func TestWhatIsNotThereIsRefusedInTheSameShape(t *testing.T) {
	logs := new(strings.Builder)
	s, token := frame(t, logs)
	for target, want := range map[string]int{
		"GET /v1/nothing": 404, "GET /v1/": 404, "GET /v1//echo": 404, "GET /v1/../etc/passwd": 404, "POST /v1/echo/": 404,
		"PUT /v1/echo": 405, "HEAD /v1/echo": 405, "GET /v1/panic": 500,
	} {
		method, path, _ := strings.Cut(target, " ")
		w, _ := ask(t, s, request(method, path, "", token))
		if w.Code != want {
			t.Errorf("%s: got %d: %s", target, w.Code, w.Body)
		}
		if want == 405 && w.Header().Get("Allow") != "POST" {
			t.Errorf("%s: allows %q", target, w.Header().Get("Allow"))
		}
	}
	if !strings.Contains(logs.String(), "a bug") {
		t.Error("the log does not say what panicked")
	}
}

func TestForeignPagesAreTurnedAway(t *testing.T) {
	s, token := frame(t, io.Discard)
	r := request("POST", "/v1/echo", `{"name":"x"}`, token)
	r.Header.Set("Origin", "https://evil.example")
	if w, f := ask(t, s, r); w.Code != 403 || f.Error.Type != "permission_error" {
		t.Errorf("got %d: %s", w.Code, w.Body)
	}
}

func TestBodiesAreClosed(t *testing.T) {
	s, token := frame(t, io.Discard)
	for body, want := range map[string]string{
		``:                          "the body is empty; send a JSON object",
		`{"name":"x","title_of":1}`: "title_of: there is no such field",
		`{"name":"x","name":"y"}`:   "name: is given twice",
		`{"name":`:                  "not JSON at byte 8: unexpected end of JSON input",
		`{"count":1}`:               "name: is required",
		`{"name":"x","count":"1"}`:  "count: must be a whole number, not a string",
	} {
		if w, f := ask(t, s, request("POST", "/v1/echo", body, token)); w.Code != 400 || f.Error.Message != want {
			t.Errorf("%s: got %d: %s", body, w.Code, w.Body)
		}
	}
	for _, kind := range []string{"", "text/plain", "application/json; charset=latin1", "multipart/form-data; boundary=x"} {
		r := request("POST", "/v1/echo", `{"name":"x"}`, token)
		r.Header.Set("Content-Type", kind)
		if w, _ := ask(t, s, r); w.Code != 400 {
			t.Errorf("%q: got %d: %s", kind, w.Code, w.Body)
		}
	}
	r := request("POST", "/v1/echo", `{"name":"`+strings.Repeat("x", maxBody)+`"}`, token)
	if w, f := ask(t, s, r); w.Code != 413 || f.Error.Type != "request_too_large" {
		t.Errorf("got %d: %s", w.Code, w.Body)
	}
	if w, _ := ask(t, s, request("POST", "/v1/echo", `{"name":"x","count":3}`, token)); w.Body.String() != `{"count":3,"name":"x"}`+"\n" {
		t.Errorf("got %s", w.Body)
	}
}

func TestParametersThatARouteHasMustBeRight(t *testing.T) {
	read := func(raw string) (*query, string) {
		c := call{&door.Call{R: &http.Request{URL: request("GET", "/v1/x", "", "").URL}}}
		c.R.URL.RawQuery = raw
		q := c.query()
		got := fmt.Sprintln(q.limit(20, 100), q.flag("include_archived"), q.time("created_at[gte]").Format(time.RFC3339),
			q.list("statuses", "idle", "running"), q.word("order", "desc", "asc"))
		return q, strings.TrimSpace(got)
	}
	for raw, want := range map[string]string{
		"":                                "20 false 0001-01-01T00:00:00Z [] desc",
		"beta=true&tomorrow=yes&x[y]=z":   "20 false 0001-01-01T00:00:00Z [] desc",
		"limit=100&include_archived=true": "100 true 0001-01-01T00:00:00Z [] desc",
		"created_at%5Bgte%5D=2026-01-02T04:04:05%2B01:00&order=asc": "20 false 2026-01-02T03:04:05Z [] asc",
		"statuses%5B%5D=idle&statuses[]=running":                    "20 false 0001-01-01T00:00:00Z [idle running] desc",
	} {
		if q, got := read(raw); q.err != nil || got != want {
			t.Errorf("%s: %v, got %s", raw, q.err, got)
		}
	}
	for _, raw := range []string{
		"limit=0", "limit=101", "limit=x", "limit=1&limit=2", "include_archived=yes", "created_at[gte]=yesterday",
		"statuses[]=asleep", "order=up", "page=%00", "limit=%zz", "order=a;b",
	} {
		q, _ := read(raw)
		newList("x").after(q)
		if q.err == nil {
			t.Errorf("%s is not refused", raw)
		}
	}
}

func TestCursorsBelongToTheirList(t *testing.T) {
	agents := newList("agents", "local", "desc")
	token := *agents.cursor("agent_1")
	if after, ok := agents.open(token); !ok || after != "agent_1" {
		t.Fatalf("got %q, %v", after, ok)
	}
	for name, other := range map[string]list{"order": newList("agents", "local", "asc"), "kind": newList("environments", "local", "desc"), "tenant": newList("agents", "x", "desc")} {
		if _, ok := other.open(token); ok {
			t.Errorf("a cursor is taken in a list of another %s", name)
		}
	}
	for i := range token {
		damaged := token[:i] + string(token[i]^1) + token[i+1:]
		if after, ok := agents.open(damaged); ok {
			t.Errorf("%s is taken as %q", damaged, after)
		}
	}
	for _, s := range []string{"page_", "agent_1", token[:len(token)-1], token + "A", strings.Repeat("A", 5000)} {
		if _, ok := agents.open(s); ok {
			t.Errorf("%s is taken", s)
		}
	}
	page := pageOf(agents, 2, []string{"a", "b", "c"}, func(s string) string { return s })
	if after, ok := agents.open(*page.Next); !ok || after != "b" || len(page.Data) != 2 {
		t.Errorf("got %+v, after %q", page, after)
	}
	if page := pageOf(agents, 3, []string{"a", "b", "c"}, func(s string) string { return s }); page.Next != nil {
		t.Errorf("the last page has a next one: %+v", page)
	}
}

func FuzzCursor(f *testing.F) {
	l := newList("agents")
	f.Add(*l.cursor("agent_1"))
	f.Add("page_")
	f.Fuzz(func(t *testing.T, s string) {
		after, ok := l.open(s)
		if ok && *l.cursor(after) != s {
			t.Errorf("%q has two spellings", after)
		}
	})
}
