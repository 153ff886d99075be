package v1_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/blob/dir"
	v1 "github.com/dormouse-run/dormouse/door/v1"
	"github.com/dormouse-run/dormouse/e2e/oracle/order"
	"github.com/dormouse-run/dormouse/internal/sse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/scripted"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store/memory"
)

// nowhere has no sandboxes: what is tested here needs none.
type nowhere struct{}

var errNowhere = errors.New("there are no sandboxes here")

func (nowhere) Create(context.Context, sandbox.Spec) (sandbox.Sandbox, error) { return nil, errNowhere }

func (nowhere) Attach(context.Context, sandbox.Handle, runner.Fence) (sandbox.Sandbox, error) {
	return nil, sandbox.ErrGone
}
func (nowhere) Stop(context.Context, sandbox.Handle, runner.Fence) error { return nil }
func (nowhere) Remove(context.Context, runner.Fence) error               { return nil }
func (nowhere) KeepsWorkspace() bool                                     { return true }
func (nowhere) ResolveEnvironment(e dormouse.Environment) (dormouse.Environment, error) {
	return e, nil
}

type one struct{ only model.Model }

func (o one) Model(string) (model.Model, error) { return o.only, nil }

// newSessionServer is a server with sessions whose model follows scripts.
func newSessionServer(t *testing.T) *testServer {
	t.Helper()
	blobs, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	damaged := &unreadable{Store: new(memory.Store)}
	sessions, err := session.New(session.Config{
		Store: damaged, Blobs: blobs, Driver: nowhere{}, Logger: quiet,
		Agent: agent.New(one{scripted.New(scripted.Options{})}, tool.Builtin()),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := newServerOn(t, damaged, func(d *v1.Config) {
		d.Sessions, d.CheckAgent, d.WriteTimeout = sessions, func(dormouse.AgentConfig) error { return nil }, 20*time.Second
	})
	h.sessions, h.store = sessions, damaged
	h.before = func() {
		sessions.EndFollowers()
		if err := sessions.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
	return h
}

// ask asks, and wants a status.
func (h *testServer) ask(want int, method, path, body string, header ...string) map[string]any {
	h.t.Helper()
	status, raw := h.do(method, path, body, header...)
	var v map[string]any
	if json.Unmarshal([]byte(raw), &v) != nil || status != want {
		h.t.Fatalf("%s %s %s: got %d %s, want %d", method, path, body, status, raw, want)
	}
	return v
}

// made is a session with tools of three kinds: one runs at once, one asks, and one
// is the client's.
func (h *testServer) made(more string) string {
	h.t.Helper()
	a := h.ask(200, "POST", "/v1/agents", `{"name":"agent","model":"m","tools":[
		{"type":"agent_toolset_20260401","default_config":{"permission_policy":{"type":"always_ask"}}},
		{"type":"custom","name":"ticket","description":"opens a ticket","input_schema":{"type":"object"}}]}`)
	e := h.ask(200, "POST", "/v1/environments", fmt.Sprintf(`{"name":%q}`, "env "+a["id"].(string)))
	s := h.ask(200, "POST", "/v1/sessions", fmt.Sprintf(`{"agent":%q,"environment_id":%q%s}`, a["id"], e["id"], more))
	return s["id"].(string)
}

func message(text string) string {
	return fmt.Sprintf(`{"type":"user.message","content":[{"type":"text","text":%q}]}`, text)
}

func (h *testServer) sends(want int, id string, events ...string) []any {
	h.t.Helper()
	data, _ := h.ask(want, "POST", "/v1/sessions/"+id+"/events", `{"events":[`+strings.Join(events, ",")+`]}`)["data"].([]any)
	return data
}

// listed is every event of a session, page by page, held against the order that
// events have.
func (h *testServer) listed(id string, query string) []json.RawMessage {
	h.t.Helper()
	var all []json.RawMessage
	for page := ""; ; {
		_, raw := h.do("GET", "/v1/sessions/"+id+"/events?"+query+page, "")
		var p struct {
			Data []json.RawMessage `json:"data"`
			Next *string           `json:"next_page"`
		}
		if err := json.Unmarshal([]byte(raw), &p); err != nil {
			h.t.Fatal(raw)
		}
		all = append(all, p.Data...)
		if p.Next == nil {
			break
		}
		page = "&page=" + *p.Next
	}
	if query == "" || strings.HasPrefix(query, "limit=") {
		if found := order.Log(all); len(found) > 0 {
			h.t.Error(order.Format(found, all))
		}
	}
	return all
}

func types(events []json.RawMessage) []string {
	var out []string
	for _, e := range events {
		out = append(out, field(e, "type"))
	}
	return out
}

func field(e json.RawMessage, name string) string {
	var v map[string]any
	_ = json.Unmarshal(e, &v)
	s, _ := v[name].(string)
	return s
}

// until waits for the n-th event of a type and returns it.
func (h *testServer) until(id, kind string, n int) json.RawMessage {
	h.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		found := 0
		for _, e := range h.listed(id, "types[]="+kind) {
			if found++; found == n {
				return e
			}
		}
	}
	h.t.Fatalf("no %s came: %v", kind, types(h.listed(id, "")))
	return nil
}

// follows opens a stream; what it brings comes by the channel.
func (h *testServer) follows(id, query string, header ...string) (events <-chan frame, stop func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/v1/sessions/"+id+"/"+query, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", h.token)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := h.http.Do(r) //nolint:bodyclose // what stops it closes it
	if err != nil || res.StatusCode != http.StatusOK {
		h.t.Fatal(err, res.Status)
	}
	out := make(chan frame, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(out)
		in := sse.NewReader(res.Body, 32<<20)
		for {
			f, err := in.Next()
			if err != nil {
				return
			}
			if f.Data != nil {
				out <- frame{f.ID, f.Event, f.Data}
			}
		}
	}()
	return out, func() {
		cancel()
		_ = res.Body.Close()
		<-done
	}
}

type frame struct {
	id, event string
	data      json.RawMessage
}

// next reads frames until one is of the type.
func next(t *testing.T, events <-chan frame, kind string) (seen []frame) {
	t.Helper()
	for {
		select {
		case f, ok := <-events:
			if !ok {
				t.Fatalf("the stream ended without %s", kind)
			}
			if seen = append(seen, f); field(f.data, "type") == kind {
				return seen
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no %s came", kind)
		}
	}
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
