package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/v1/schema"
)

func load(t *testing.T) *schema.Spec {
	t.Helper()
	s, err := schema.Load()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheFamilyHasItsRoutesAndEvents(t *testing.T) {
	s := load(t)
	if n := len(s.Operations()); n != 105 {
		t.Errorf("%d routes, want 105", n)
	}
	if n := len(s.EventTypes()); n != 44 {
		t.Errorf("%d types of event, want 44", n)
	}
}

// TestEverySchemaCompiles makes sure that no answer is held against nothing.
func TestEverySchemaCompiles(t *testing.T) {
	s := load(t)
	for _, o := range s.Operations() {
		err := o.Reply(http.StatusOK, http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_1"}}, []byte(`7`))
		switch {
		case strings.HasSuffix(o.Path, "/content"): // bytes, not JSON
		case err == nil || strings.Contains(err.Error(), "compile"):
			t.Errorf("%s: 7 is an answer: %v", o, err)
		}
		_ = o.Request([]byte(`{}`))
	}
}

func TestARequestFindsItsOperation(t *testing.T) {
	s := load(t)
	for _, c := range []struct{ method, url, beta, want string }{
		{"GET", "/v1/agents", "", "GET /v1/agents"},
		{"POST", "/v1/agents/agent_1?beta=true", "", "POST /v1/agents/{agent_id}"},
		{"GET", "/v1/environments/env_1/work/poll", "", "GET /v1/environments/{environment_id}/work/poll"},
		{"GET", "/v1/environments/env_1/work/work_1", "", "GET /v1/environments/{environment_id}/work/{work_id}"},
		{"GET", "/v1/sessions/s/events/stream?event_deltas%5B%5D=agent.message", "x", "GET /v1/sessions/{session_id}/events/stream"},
		{"PUT", "/v1/agents", "", "<nil>"},
		{"GET", "/v1/agents/", "", "GET /v1/agents"},
		{"GET", "/v1/nothing", "", "<nil>"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		r.Header.Set("Anthropic-Beta", c.beta)
		got := "<nil>"
		if o := s.Find(r); o != nil {
			got = o.String()
		}
		if got != c.want {
			t.Errorf("%s %s is %s, want %s", c.method, c.url, got, c.want)
		}
	}
}

const (
	goodEvent = `{"type":"user.message","id":"sevt_1","content":[{"type":"text","text":"hi"}],"processed_at":null}`
	goodError = `{"type":"error","error":{"type":"not_found_error","message":"no agent agent_1"},"request_id":"req_1"}`
)

// answer is what a server says.
type answer struct {
	status int
	header map[string]string
	body   string
}

// ask has a server give an answer through the proxy and returns what the report
// says of it.
func ask(t *testing.T, method, path, body string, a answer) (*schema.Report, string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "req_1")
		for k, v := range a.header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	defer server.Close()
	report := schema.NewReport()
	client := &http.Client{Transport: &schema.Transport{Spec: load(t), Report: report}}
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != a.body {
		t.Errorf("the client read %q, the server said %q", got, a.body)
	}
	return report, string(got)
}

func TestWhatIsAsDescribedIsNoViolation(t *testing.T) {
	frame := "event: message\ndata: " + goodEvent + "\n\n"
	sse := map[string]string{"Content-Type": "text/event-stream"}
	for name, c := range map[string]struct {
		method, path, body string
		answer
	}{
		"a list":         {"GET", "/v1/sessions/s/events", "", answer{200, nil, `{"data":[` + goodEvent + `],"next_page":null}`}},
		"an error":       {"GET", "/v1/agents/x", "", answer{404, nil, goodError}},
		"no such route":  {"GET", "/v1/nothing", "", answer{404, nil, goodError}},
		"a stream":       {"GET", "/v1/sessions/s/events/stream", "", answer{200, sse, ": hello\n\n" + frame + "event: ping\ndata: {}\n\n" + frame}},
		"a conflict":     {"POST", "/v1/agents/x", `{"version":1}`, answer{409, nil, `{"type":"error","error":{"type":"conflict_error","message":"m"},"request_id":"req_1"}`}},
		"too large":      {"POST", "/v1/agents", `{}`, answer{413, nil, `{"type":"error","error":{"type":"request_too_large","message":"m"},"request_id":"req_1"}`}},
		"another system": {"GET", "/api/sessions", "", answer{200, nil, `[]`}},
		"a good request": {"POST", "/v1/sessions/s/events", `{"events":[{"type":"user.interrupt"}]}`, answer{200, nil, `{"data":[{"type":"user.interrupt","id":"sevt_2","processed_at":null}]}`}},
	} {
		t.Run(name, func(t *testing.T) {
			if report, _ := ask(t, c.method, c.path, c.body, c.answer); report.Wrong() != 0 {
				t.Errorf("%v", report.Violations())
			}
		})
	}
}

func TestWhatIsNotAsDescribedIsAViolation(t *testing.T) {
	sse := map[string]string{"Content-Type": "text/event-stream"}
	list := `{"data":[` + goodEvent + `],"next_page":null}`
	for name, c := range map[string]struct {
		method, path, body string
		answer
	}{
		"a field too many":            {"GET", "/v1/sessions/s/events", "", answer{200, nil, `{"data":[],"next_page":null,"more":1}`}},
		"an event of no kind":         {"GET", "/v1/sessions/s/events", "", answer{200, nil, `{"data":[{"type":"turn.started","id":"x"}]}`}},
		"a time that is none":         {"GET", "/v1/sessions/s/events", "", answer{200, nil, strings.ReplaceAll(list, `"processed_at":null`, `"processed_at":"now"`)}},
		"a preview in a list":         {"GET", "/v1/sessions/s/events", "", answer{200, nil, `{"data":[{"type":"event_start","event":{"type":"agent.message","id":"sevt_1"}}]}`}},
		"not JSON":                    {"GET", "/v1/agents", "", answer{200, nil, `[`}},
		"another status":              {"GET", "/v1/sessions/s/events", "", answer{201, nil, list}},
		"no content":                  {"POST", "/v1/agents/x/archive", "", answer{204, nil, ``}},
		"another content type":        {"GET", "/v1/sessions/s/events", "", answer{200, map[string]string{"Content-Type": "text/plain"}, list}},
		"no request id":               {"GET", "/v1/sessions/s/events", "", answer{200, map[string]string{"Request-Id": ""}, list}},
		"an error of another status":  {"GET", "/v1/agents/x", "", answer{400, nil, goodError}},
		"an error of another request": {"GET", "/v1/agents/x", "", answer{404, map[string]string{"Request-Id": "req_2"}, goodError}},
		"an error without words":      {"GET", "/v1/agents/x", "", answer{404, nil, strings.ReplaceAll(goodError, "no agent agent_1", "")}},
		"an error of ours":            {"GET", "/v1/agents/x", "", answer{404, nil, `{"error":{"type":"not_found","message":"m"}}`}},
		"an error in text":            {"GET", "/v1/nothing", "", answer{404, map[string]string{"Content-Type": "text/plain"}, "404 page not found"}},
		"a route of ours":             {"GET", "/v1/nothing", "", answer{200, nil, `{}`}},
		"a frame without a name":      {"GET", "/v1/sessions/s/events/stream", "", answer{200, sse, "data: " + goodEvent + "\n\n"}},
		"a frame named by its type":   {"GET", "/v1/sessions/s/events/stream", "", answer{200, sse, "event: user.message\ndata: " + goodEvent + "\n\n"}},
		"a bad event in a stream":     {"GET", "/v1/sessions/s/events/stream", "", answer{200, sse, "event: message\ndata: {}\n\n"}},
		"half a frame":                {"GET", "/v1/sessions/s/events/stream", "", answer{200, sse, "event: message\ndata: " + goodEvent}},
		"an error frame of ours":      {"GET", "/v1/sessions/s/events/stream", "", answer{200, sse, "event: error\ndata: {}\n\n"}},
		"a stream that is packed":     {"GET", "/v1/sessions/s/events/stream", "", answer{200, map[string]string{"Content-Type": "text/event-stream", "Content-Encoding": "br"}, ""}},
		"a bad request that is taken": {"POST", "/v1/sessions/s/events", `{"events":[{"type":"user.interrupt","x":1}]}`, answer{200, nil, `{"data":[]}`}},
	} {
		t.Run(name, func(t *testing.T) {
			if report, _ := ask(t, c.method, c.path, c.body, c.answer); report.Wrong() == 0 {
				t.Error("nothing was said of it")
			}
		})
	}
}

func TestProxyTellsEveryStream(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Request-Id", "req_1")
		for range 3 {
			fmt.Fprintf(w, "event: message\ndata: %s\n\n", goodEvent)
		}
	}))
	defer server.Close()
	report := schema.NewReport()
	p, err := schema.NewProxy(load(t), report, func(_ context.Context) (string, error) { return strings.TrimPrefix(server.URL, "http://"), nil })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	received := make(chan schema.Stream, 1)
	p.Stream = func(s schema.Stream) { received <- s }
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+"/v1/sessions/s/events/stream?event_deltas%5B%5D=agent.message", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	s := <-received
	if len(s.Events) != 3 || len(s.Previews) != 1 || string(s.Events[2]) != goodEvent {
		t.Errorf("told %+v", s)
	}
	if report.Seen("user.message") != 3 || !report.Served("GET /v1/sessions/{session_id}/events/stream") || report.Wrong() != 0 {
		t.Errorf("%s\n%s%v", report, report.Routes(), report.Violations())
	}
}

func TestReportsAddUp(t *testing.T) {
	a, _ := ask(t, "GET", "/v1/sessions/s/events", "", answer{200, nil, `{"data":[` + goodEvent + `],"next_page":null}`})
	b, _ := ask(t, "GET", "/v1/agents", "", answer{200, nil, `{}`})
	path := t.TempDir() + "/report.json"
	if err := b.Save(path); err != nil {
		t.Fatal(err)
	}
	read, err := schema.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	a.Add(read)
	a.Add(read)
	if got, want := a.String(), "schema: routes=2 replies=3 frames=0 events=1 violations=2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzFramesDoNotDependOnHowTheyAreCut(f *testing.F) {
	f.Add("event: message\ndata: {}\n\n: x\r\n\r\nevent:ping\r\rdata:a\ndata: b\n\n", uint8(3))
	f.Add("data\n\n\n:\nevent\r\n\r\n", uint8(1))
	f.Fuzz(func(t *testing.T, text string, cut uint8) {
		read := func(size int) []string {
			var got []string
			frames := schema.Frames{See: func(fr schema.Frame) {
				b, err := json.Marshal(fr)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(b))
			}}
			for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
				if _, err := io.WriteString(&frames, rest[:min(size, len(rest))]); err != nil {
					t.Fatal(err)
				}
			}
			return append(got, fmt.Sprint(frames.Rest()))
		}
		whole, parts := read(len(text)+1), read(int(cut)+1)
		if fmt.Sprint(whole) != fmt.Sprint(parts) {
			t.Errorf("in one piece %q, in pieces of %d %q", whole, cut+1, parts)
		}
	})
}
