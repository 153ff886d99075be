package v1_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/v1/site"
)

// asks sends a request of any kind and returns the status of the answer, whose
// shape the proxy looks at.
func asks(ctx context.Context, t *testing.T, s *site.Site, method, path string, header http.Header, body io.Reader) int {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, s.Proxy.URL()+path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	maps.Copy(req.Header, header)
	err = s.Send(req, nil)
	var no *site.Refusal
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &no):
		return no.Status
	}
	t.Fatalf("%s %.80s: %v", method, path, err)
	return 0
}

// between checks a status.
func between(t *testing.T, what string, status, from, to int) {
	t.Helper()
	if status < from || status > to {
		t.Errorf("%s: got %d, want %d to %d", what, status, from, to)
	}
}

var plainJSON = http.Header{"Content-Type": {"application/json"}}

func TestWhatIsNotARequestIsRefusedInTheShapeOfTheAPI(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, site.Options{})
	c := newClient(ctx, t, s, false)
	session := "/v1/sessions/" + c.session
	deep := strings.Repeat("[", 100_000)
	for _, path := range []string{"/v1/agents", "/v1/environments", "/v1/sessions", session, session + "/events"} {
		for name, body := range map[string]string{
			"nothing": "", "half an object": "{", "a list": "[]", "null": "null", "a text": `"x"`, "two objects": "{}{}", "text behind": "{} x",
			"NUL": "{\"name\":\"\x00\"}", "no UTF-8": "{\"name\":\"\xff\xfe\"}", "half a pair": `{"title":"\ud800"}`, "deep": `{"events":` + deep, "a huge number": `{"version":1e999999}`,
			"a field of nobody's": `{"no_such_field":1}`, "binary": "\x1f\x8b\x08\x00", "a type of nobody's": `{"events":[{"type":"user.shout"}]}`,
			"no events": `{"events":[]}`, "events that are none": `{"events":[null,7,"x"]}`, "an empty text": `{"events":[{"type":"user.message","content":[{"type":"text","text":""}]}]}`,
			"no content": `{"events":[{"type":"user.message","content":[]}]}`, "a block of nobody's": `{"events":[{"type":"user.message","content":[{"type":"video"}]}]}`,
			"what only servers say": `{"events":[{"type":"agent.message","content":[{"type":"text","text":"x"}]}]}`,
			"a redacted block":      `{"events":[{"type":"user.message","content":[{"type":"redacted"}]}]}`,
			"an answer to nothing":  `{"events":[{"type":"user.tool_confirmation","tool_use_id":"sevt_nobody","result":"allow"}]}`,
			"a result for nothing":  `{"events":[{"type":"user.custom_tool_result","custom_tool_use_id":"sevt_nobody"}]}`,
			"a message to allow":    `{"events":[{"type":"user.tool_confirmation","tool_use_id":"x","result":"allow","deny_message":"no"}]}`,
			"a system message":      `{"events":[{"type":"system.message","content":[{"type":"text","text":"x"}]}]}`,
		} {
			if path == session && name == "half a pair" { // a title may be anything
				continue
			}
			between(t, path+" with "+name, asks(ctx, t, s, http.MethodPost, path, plainJSON, strings.NewReader(body)), 400, 422)
		}
	}
	for name, header := range map[string]http.Header{
		"text": {"Content-Type": {"text/plain"}}, "a form": {"Content-Type": {"application/x-www-form-urlencoded"}},
		"parts": {"Content-Type": {"multipart/form-data; boundary=x"}}, "no type": {}, "a bad type": {"Content-Type": {";;"}},
		"another alphabet": {"Content-Type": {"application/json; charset=utf-16"}}, "packed": {"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
	} {
		status := asks(ctx, t, s, http.MethodPost, "/v1/agents", header, strings.NewReader(`{"name":"x"}`)) // a model is missing
		between(t, "a body of "+name, status, 400, 422)
	}
}

func TestQuestionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, site.Options{})
	c := newClient(ctx, t, s, false)
	c.play("some")
	session := "/v1/sessions/" + c.session
	cursor := func(path string) string {
		var page struct {
			NextPage string `json:"next_page"`
		}
		if err := s.Do(ctx, http.MethodGet, path, nil, &page); err != nil || page.NextPage == "" {
			t.Fatalf("%s gave no cursor: %v", path, err)
		}
		return url.QueryEscape(page.NextPage)
	}
	asc := cursor(session + "/events?limit=1&order=asc")
	for _, path := range []string{
		session + "/events?order=desc&page=" + asc, "/v1/agents?page=" + asc, "/v1/sessions?page=" + asc, session + "/events?page=x", session + "/events?page=%00",
		session + "/events?page=" + strings.Repeat("A", 8000), session + "/events?order=sideways", session + "/events?types%5B%5D=nothing",
		session + "/events?created_at%5Bgte%5D=yesterday", session + "/events/stream?event_deltas%5B%5D=agent.tool_use",
		session + "/events/stream?" + strings.Repeat("event_deltas%5B%5D=agent.message&", 101),
		"/v1/agents?limit=-1", "/v1/agents?limit=x", "/v1/agents?limit=99999999999999999999", "/v1/agents?page=x", "/v1/environments?page=x", "/v1/environments?limit=0",
		"/v1/sessions?page=x", "/v1/sessions?statuses%5B%5D=asleep", "/v1/sessions?agent_version=x", "/v1/sessions?created_at%5Blt%5D=x", "/v1/sessions?order=x",
	} {
		between(t, path, asks(ctx, t, s, http.MethodGet, path, nil, nil), 400, 400)
	}
	for _, path := range []string{
		"/v1/agents/x", "/v1/agents/agent_nobody", "/v1/agents/" + strings.Repeat("a", 5000), "/v1/agents/%00", "/v1/agents/..%2f..%2fetc", "/v1/agents/%F0%9F%90%AD",
		"/v1/environments/env_x", "/v1/sessions/sesn_x", "/v1/sessions/sesn_x/events", "/v1/sessions/sesn_x/events/stream", session + "/threads/sthr_x",
		session + "/threads/sthr_x/stream", "/v1/nothing", "/v1/agents/", "/v1//agents", "/v1/", "/v1/models/nothing", session + "/",
	} {
		between(t, path, asks(ctx, t, s, http.MethodGet, path, nil, nil), 400, 404)
	}
	for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete} {
		between(t, method, asks(ctx, t, s, method, "/v1/agents", nil, nil), 404, 405)
	}
	for name, h := range map[string]http.Header{
		"a wrong key": {"X-Api-Key": {"wrong"}}, "a wrong token": {"Authorization": {"Bearer wrong"}}, "no scheme": {"Authorization": {s.Token()}}, "an empty token": {"Authorization": {"Bearer "}},
	} {
		between(t, name, asks(ctx, t, s, http.MethodGet, "/v1/agents", h, nil), 401, 401)
	}
	many := make([]any, 51)
	for i := range many {
		many[i] = map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": "x"}}}
	}
	body, _ := json.Marshal(map[string]any{"agent": "agent_x", "environment_id": "env_x", "initial_events": many})
	between(t, "51 initial events", asks(ctx, t, s, http.MethodPost, "/v1/sessions", plainJSON, bytes.NewReader(body)), 400, 404)
	c.end()
}

// limit is what a body may be.
const limit = 32 << 20

// It runs alone: what it sends is large for whatever else this process does.
func TestBodiesAreTakenUpToTheLimitAndNoFurther(t *testing.T) {
	s, ctx := open(t, site.Options{})
	c := newClient(ctx, t, s, false)
	l, err := s.Live(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before := memory(t, l)
	const head, tail = `{"name":"x","model":"claude-opus-5-5","description":"`, `"}`
	body := func(size int) []byte {
		return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
	}
	for range 4 {
		between(t, "32 MiB", asks(ctx, t, s, http.MethodPost, "/v1/agents", plainJSON, bytes.NewReader(body(limit))), 400, 400)
		between(t, "32 MiB and a byte", asks(ctx, t, s, http.MethodPost, "/v1/agents", plainJSON, bytes.NewReader(body(limit+1))), 413, 413)
		between(t, "32 MiB and a byte in pieces", asks(ctx, t, s, http.MethodPost, "/v1/agents", plainJSON, io.MultiReader(bytes.NewReader(body(limit+1)))), 413, 413)
	}
	expect := plainJSON.Clone()
	expect.Set("Expect", "100-continue")
	between(t, "a body that is announced", asks(ctx, t, s, http.MethodPost, "/v1/agents", expect, bytes.NewReader(body(limit+1))), 413, 413)
	// A message that is large and may be.
	text := strings.Repeat("squeak ", 7<<20/7)
	c.send("large", says("large"), map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": text + "#large#"}}})
	c.until("it is answered", func(seen []site.Event) bool { return idle(since(seen, "large"), "end_turn") })
	c.sent = append(c.sent, "large")
	c.end()
	const most = 1 << 30
	if grew := memory(t, l) - before; grew > most {
		t.Errorf("the server grew by %d MiB", grew>>20)
	}
}

func TestHugeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, site.Options{})
	l, err := s.Live(ctx)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr()+"/v1/agents", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", s.Token())
	req.Header.Set("X-Huge", strings.Repeat("x", 3<<20))
	res, err := http.DefaultClient.Do(req)
	if err == nil { // a connection that is closed while it is written to says as much
		_ = res.Body.Close()
		between(t, "huge headers", res.StatusCode, 431, 431)
	}
	between(t, "a request after it", asks(ctx, t, s, http.MethodGet, "/v1/agents", nil, nil), 200, 200)
}

// TestWhoConnectsAndSaysLittleHoldsNobodyUp opens connections that send half a
// request, and streams that are not read, while another client works.
func TestWhoConnectsAndSaysLittleHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, site.Options{})
	c := newClient(ctx, t, s, false)
	l, err := s.Live(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before := memory(t, l)
	halves := []string{
		"", "G", "GET /v1/agents HTTP/1.1\r\n", "GET /v1/agents HTTP/1.1\r\nHost: x\r\nX-Api-Key: ",
		"POST /v1/agents HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + s.Token() + "\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{",
		"POST /v1/agents HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + s.Token() + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"na",
	}
	for i := range 240 {
		dial(ctx, t, l, halves[i%len(halves)])
	}
	for range 40 { // streams that are not read
		dial(ctx, t, l, "GET /v1/sessions/"+c.session+"/events/stream?event_deltas%5B%5D=agent.message HTTP/1.1\r\nHost: x\r\nX-Api-Key: "+s.Token()+"\r\n\r\n")
	}
	steps := make([]rig.Step, 0, 13)
	for range 12 {
		steps = append(steps, rig.Bash(`head -c 90000 /dev/zero | tr '\0' x`))
	}
	c.send("busy", says("busy"), c.message("busy", append(steps, rig.Say("done"))...))
	c.until("the work is done", func(seen []site.Event) bool { return idle(since(seen, "busy"), "end_turn") })
	c.end()
	const most = 400 << 20
	if grew := memory(t, l) - before; grew > most {
		t.Errorf("the server grew by %d MiB", grew>>20)
	}
}

// dial opens a connection that says something and reads nothing.
func dial(ctx context.Context, t *testing.T, l *rig.Life, says string) {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10)
	}
	if _, err := io.WriteString(conn, says); err != nil {
		t.Fatal(err)
	}
}

// memory is what a server has of it.
func memory(t *testing.T, l *rig.Life) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.PID()))
	if err != nil {
		t.Skip("nobody tells how much memory it has")
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("the server has no memory")
	return 0
}
