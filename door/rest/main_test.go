package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/door/rest"
	"github.com/dormouse-run/dormouse/internal/sse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/scripted"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testServer is a server over real sessions, a store in memory, a scripted model and
// a sandbox that repeats its commands.
type testServer struct {
	t        testing.TB
	url      string
	token    string
	sessions *session.Sessions
	door     *rest.Server
	http     *http.Client
	boxes    *boxes
	layers   string // where they are kept, if they are
}

func newServer(t testing.TB, change ...func(*rest.Config)) *testServer {
	t.Helper()
	driver := new(boxes)
	h := newServerOn(t, driver, change...)
	h.boxes = driver
	return h
}

// newServerOn is newServer with sandboxes of another driver.
func newServerOn(t testing.TB, driver sandbox.Driver, change ...func(*rest.Config)) *testServer {
	t.Helper()
	return newServerOf(t, driver, nil, change...)
}

// newServerOf is newServerOn with another configuration of the sessions.
func newServerOf(t testing.TB, driver sandbox.Driver, furnish func(*session.Config), change ...func(*rest.Config)) *testServer {
	t.Helper()
	temp := t.TempDir()
	blobs, err := dir.Open(filepath.Join(temp, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(temp, "token")
	who, err := auth.OpenLocal(token)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	made := session.Config{
		Store: new(memory.Store), Blobs: blobs, Driver: driver, Logger: log,
		Agent: agent.New(one{scripted.New(scripted.Options{})}, tool.Builtin()),
	}
	if furnish != nil {
		furnish(&made)
	}
	sessions, err := session.New(made)
	if err != nil {
		t.Fatal(err)
	}
	c := rest.Config{
		Sessions: sessions, Auth: who, Logger: log,
		Agent: dormouse.AgentConfig{Name: "test", Model: "scripted", Tools: []dormouse.ToolConfig{
			{Name: "bash", Permission: dormouse.PermissionAllow},
		}},
	}
	for _, f := range change {
		f(&c)
	}
	h := &testServer{t: t, sessions: sessions, door: rest.New(c), http: &http.Client{Transport: &http.Transport{}}}
	if h.token, err = auth.ReadToken(token); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h.door)
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(16 << 10) // so that a reader that stalls is noticed soon
		}
		return ctx
	}
	s.Start()
	h.url = s.URL
	t.Cleanup(func() {
		sessions.EndFollowers()
		h.http.CloseIdleConnections()
		s.Close()
		if err := sessions.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return h
}

type one struct{ only model.Model }

func (o one) Model(string) (model.Model, error) { return o.only, nil }

func (h *testServer) request(method, path string, body io.Reader) *http.Request {
	h.t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(h.t.Context()), method, h.url+path, body)
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+h.token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func (h *testServer) do(r *http.Request) (int, []byte) {
	h.t.Helper()
	res, err := h.http.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	if res.ContentLength != int64(len(b)) && res.Header.Get("Content-Type") == "application/json" {
		h.t.Errorf("%s %s: the answer says it is %d bytes long", r.Method, r.URL.Path, res.ContentLength)
	}
	if res.Header.Get("Request-Id") == "" {
		h.t.Errorf("%s %s: the answer has no request id", r.Method, r.URL.Path)
	}
	return res.StatusCode, b
}

// call sends body, which is JSON or empty, and decodes the answer.
func (h *testServer) call(method, path, body string, want int, out any) {
	h.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	status, b := h.do(h.request(method, path, in))
	if status != want {
		h.t.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, status, want, b)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(b, out); err != nil {
		h.t.Fatalf("%s %s: %v: %s", method, path, err, b)
	}
}

// create makes a session and returns its path.
func (h *testServer) create(body string) string {
	h.t.Helper()
	var made rest.Created
	h.call(http.MethodPost, "/api/sessions", body, http.StatusCreated, &made)
	return "/api/sessions/" + string(made.Session)
}

func (h *testServer) show(path string) rest.Session {
	h.t.Helper()
	var s rest.Session
	h.call(http.MethodGet, path, "", http.StatusOK, &s)
	return s
}

// until waits for a phase.
func (h *testServer) until(path string, phase dormouse.Phase) rest.Session {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		s := h.show(path)
		if s.Phase == phase {
			return s
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s is %s, not %s", path, s.Phase, phase)
		}
	}
}

// rested waits until a session wants nothing: ready alone may have a prompt that
// is not taken yet, or a command that is still being ended.
func (h *testServer) rested(path string) {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		s := h.until(path, dormouse.PhaseReady)
		var open struct {
			Ops []dormouse.OpRecord `json:"ops"`
		}
		h.call(http.MethodGet, path+"/ops", "", http.StatusOK, &open)
		if s.Queue == 0 && !slices.ContainsFunc(open.Ops, func(o dormouse.OpRecord) bool { return o.Status == dormouse.OpOpen }) {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s does not rest: %+v, %+v", path, s, open.Ops)
		}
	}
}

type page struct {
	Events []dormouse.Event `json:"events"`
	Next   uint64           `json:"next"`
	More   bool             `json:"more"`
}

func (h *testServer) events(path, query string) page {
	h.t.Helper()
	var p page
	h.call(http.MethodGet, path+"/events"+query, "", http.StatusOK, &p)
	return p
}

// frame is one server-sent event.
type frame struct {
	id    uint64
	event string
	data  string
}

// follower reads a stream.
type follower struct {
	t      testing.TB
	r      *sse.Reader
	cancel context.CancelFunc
	body   io.Closer
}

func (h *testServer) follow(path, query string) *follower {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	r := h.request(http.MethodGet, path+"/events?follow=true"+query, nil).WithContext(ctx)
	res, err := h.http.Do(r) //nolint:bodyclose // the follower closes it
	if err != nil {
		h.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(res.Body)
		h.t.Fatalf("follow %s: %d %s", query, res.StatusCode, b)
	}
	f := &follower{t: h.t, r: sse.NewReader(res.Body, 64<<20), cancel: cancel, body: res.Body}
	h.t.Cleanup(f.stop)
	return f
}

func (f *follower) stop() { f.cancel(); f.body.Close() }

// next returns the next frame; false when the stream is over. A comment is a
// frame without event.
func (f *follower) next() (frame, bool) {
	got, err := f.r.Next()
	if err != nil {
		return frame{}, false
	}
	f.t.Helper()
	var id uint64
	if got.ID != "" {
		if id, err = strconv.ParseUint(got.ID, 10, 64); err != nil {
			f.t.Errorf("id %q", got.ID)
		}
	}
	return frame{id, got.Event, string(got.Data)}, true
}

// nextEvent skips comments.
func (f *follower) nextEvent() frame {
	f.t.Helper()
	for {
		got, ok := f.next()
		if !ok {
			f.t.Fatal("the stream ended")
		}
		if got.event != "" {
			return got
		}
	}
}

// boxes is a driver whose sandboxes repeat the commands they are given. A
// command "wait" ends when it is killed. No workspace is removed while hold is
// held.
type boxes struct{ hold sync.Mutex }

func (*boxes) KeepsWorkspace() bool { return true }

func (*boxes) Create(_ context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	return &box{handle: fmt.Appendf(nil, `{"generation":%d}`, s.Fence.Generation), gone: make(chan struct{}), ops: make(map[dormouse.OpID]*op)}, nil
}

func (*boxes) Attach(context.Context, sandbox.Handle, runner.Fence) (sandbox.Sandbox, error) {
	return nil, sandbox.ErrGone
}

func (*boxes) Stop(context.Context, sandbox.Handle, runner.Fence) error { return nil }

func (b *boxes) Remove(context.Context, runner.Fence) error {
	b.hold.Lock()
	defer b.hold.Unlock()
	return nil
}

type op struct {
	call  runner.Call
	ended chan struct{}
	end   sync.Once
}

type box struct {
	handle sandbox.Handle
	gone   chan struct{}
	mu     sync.Mutex
	ops    map[dormouse.OpID]*op // guarded by mu
}

func (b *box) Handle() sandbox.Handle { return b.handle }

func (b *box) find(id dormouse.OpID) *op {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ops[id]
}

func (b *box) Start(_ context.Context, c runner.Call) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ops[c.Op] == nil {
		o := &op{call: c, ended: make(chan struct{})}
		if c.Exec == nil || c.Exec.Command != "wait" {
			close(o.ended)
			o.end.Do(func() {})
		}
		b.ops[c.Op] = o
	}
	return nil
}

func (b *box) Run(ctx context.Context, c runner.Call, started func(), out func([]byte)) (runner.Result, error) {
	if err := b.Start(ctx, c); err != nil {
		return runner.Result{}, err
	}
	started()
	return b.Wait(ctx, c.Op, out)
}

func (b *box) Wait(ctx context.Context, id dormouse.OpID, out func([]byte)) (runner.Result, error) {
	o := b.find(id)
	if o == nil {
		return runner.Result{}, runner.ErrNeverSeen
	}
	select {
	case <-o.ended:
	case <-ctx.Done():
		return runner.Result{}, context.Cause(ctx)
	}
	var r runner.Result
	if o.call.Exec != nil {
		r.Output = []byte("ran " + o.call.Exec.Command + "\n")
		r.Killed = o.call.Exec.Command == "wait"
	}
	if out != nil {
		out(bytes.Clone(r.Output))
	}
	return r, nil
}

func (b *box) Ask(_ context.Context, id dormouse.OpID) (runner.Report, error) {
	return runner.Report{Op: id, State: runner.NeverSeen}, nil
}

func (b *box) Kill(_ context.Context, id dormouse.OpID) error {
	if o := b.find(id); o != nil {
		o.end.Do(func() { close(o.ended) })
	}
	return nil
}

func (*box) Forget(dormouse.OpID)    {}
func (b *box) Gone() <-chan struct{} { return b.gone }
func (*box) Close() error            { return nil }
