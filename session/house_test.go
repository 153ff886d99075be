package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/scripted"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/sessiontest"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withDatabase{m}) }

// withDatabase stops the database that tests may have started before the check
// for leaks.
type withDatabase struct{ m *testing.M }

func (w withDatabase) Run() int {
	code := w.m.Run()
	if err := stopDatabase(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// house is a server in miniature: real actors and the real loop, on a store and
// a sandbox that outlive it, as a machine outlives a process.
type house struct {
	t     *testing.T
	store *faultyStore
	blobs *mapBlobs
	boxes *boxes
	model *scripted.Model
	live  *session.Sessions
	stop  context.CancelFunc
	id    dormouse.SessionID
	skew  atomic.Int64   // by how much the clock was set
	kind  sandbox.Driver // boxes, unless it is of another kind
	idle  time.Duration  // what the server lets any sandbox be idle
	most  int            // sandboxes awake at once

	releaseReserve func() bool // frees reserved disk space

	snapshots *snapshot.Store // nil if none are stored
	dir       string          // where snapshots are
	keep      dormouse.Retention
	heard     func(model.Request) // what a model is asked
	price     model.Price         // of every model
}

func newHouse(t *testing.T, change ...func(*house)) *house {
	h := &house{
		t: t, store: &faultyStore{Store: new(memory.Store)}, blobs: newBlobs(),
		boxes: &boxes{boxes: make(map[boxName]*fakeBox), effects: make(map[string]int)}, model: scripted.New(scripted.Options{}),
	}
	h.kind = h.boxes
	for _, f := range change {
		f(h)
	}
	h.open()
	t.Cleanup(h.close)
	return h
}

// open starts a server on what is there. One that still runs becomes a stale
// writer: it was not told.
func (h *house) open() {
	s, err := session.New(session.Config{
		Store: h.store, Blobs: h.blobs, Driver: h.kind, IdleTimeout: h.idle,
		Agent:  agent.New(oneModel{h.model, h.heard, h.price}, tool.Builtin()),
		Logger: slog.New(slog.DiscardHandler), Clock: h.now, MaxActive: h.most,
		Snapshots: h.snapshots, Retention: h.keep,
		ReleaseReserve: func() bool { return h.releaseReserve != nil && h.releaseReserve() },
	})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(h.t.Context())
	h.live, h.stop = s, stop
	go func() { _ = s.Run(ctx) }()
}

// now is what the machine's clock shows.
func (h *house) now() time.Time { return time.Now().Round(0).Add(time.Duration(h.skew.Load())) }

func (h *house) close() {
	h.stop()
	if err := h.live.Close(context.Background()); err != nil {
		h.t.Error(err)
	}
}

// crash leaves the server where it is, cut off from its sandboxes, and starts
// another. The old one is only told much later, as a stopped process would be.
func (h *house) crash() {
	h.cut()
	h.open()
}

// cut leaves the server where it is, cut off from its sandboxes.
func (h *house) cut() {
	old, stop := h.live, h.stop
	stop() // it wakes nothing any more
	h.boxes.cut()
	h.t.Cleanup(func() { _ = old.Close(context.Background()) })
}

// reopen starts a server on another store over the same data. The server before
// keeps the store that it has.
func (h *house) reopen(over func(store.Store) store.Store) {
	h.cut()
	h.store = &faultyStore{Store: over(h.store.Store)}
	h.open()
}

func (h *house) create(c dormouse.Created) {
	h.t.Helper()
	if c.Recovery == "" {
		c.Recovery = dormouse.RecoverAuto
	}
	if c.Agent.Model == "" {
		c.Agent.Name, c.Agent.Model = "agent", "scripted"
	}
	if c.Agent.Tools == nil {
		c.Agent.Tools = []dormouse.ToolConfig{{Name: "bash"}, {Name: "read"}, {Name: "write"}}
	}
	row, err := h.live.Create(h.t.Context(), dormouse.User("ada"), c)
	if err != nil {
		h.t.Fatal(err)
	}
	h.id = row.Session
}

// asks is the prompt that a client sends.
func (h *house) asks(clientID, text string) law.Prompt {
	content := []dormouse.Block{dormouse.Text(text)}
	raw, _ := json.Marshal(content)
	return law.Prompt{ID: dormouse.PromptID(h.id, clientID), Body: dormouse.DigestOf(raw), Content: content}
}

func (h *house) prompt(clientID, text string) error { return h.do(h.asks(clientID, text)) }

func (h *house) queue(clientID string) (again bool, err error) {
	return h.live.Once(h.t.Context(), h.id, dormouse.User("ada"), h.asks(clientID, "hello"))
}

func (h *house) mustPrompt(clientID, text string) {
	h.t.Helper()
	if err := h.prompt(clientID, text); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) do(v law.Verb) error {
	return h.live.Do(h.t.Context(), h.id, dormouse.User("ada"), v)
}

func (h *house) log() []dormouse.Event {
	h.t.Helper()
	var all []dormouse.Event
	for {
		events, err := h.live.Events(context.Background(), h.id, uint64(len(all)), 1000)
		if err != nil {
			h.t.Fatal(err)
		}
		if len(events) == 0 {
			return all
		}
		all = append(all, events...)
	}
}

// checked returns the log after holding it against the law.
func (h *house) checked() []dormouse.Event {
	h.t.Helper()
	events := h.log()
	if err := sessiontest.Check(events); err != nil {
		h.t.Errorf("%v\n%s", err, dump(events))
	}
	state, err := h.live.Peek(context.Background(), h.id)
	if err != nil {
		h.t.Fatal(err)
	}
	row, err := h.store.Session(context.Background(), h.id)
	if err != nil {
		h.t.Fatal(err)
	}
	if row.Phase != law.PhaseOf(state) || row.Status != law.StatusOf(state) {
		h.t.Errorf("row shows %s/%s, the log says %s/%s", row.Phase, row.Status, law.PhaseOf(state), law.StatusOf(state))
	}
	return events
}

func (h *house) phase() dormouse.Phase {
	h.t.Helper()
	row, err := h.store.Session(context.Background(), h.id)
	if err != nil {
		h.t.Fatal(err)
	}
	return row.Phase
}

// texts lists what the agent said.
func (h *house) texts() []string {
	var out []string
	for _, e := range h.log() {
		var m dormouse.Message
		if e.Type == dormouse.AgentMessage && json.Unmarshal(e.Payload, &m) == nil {
			for _, b := range m.Content {
				out = append(out, b.Text)
			}
		}
	}
	return out
}

func (h *house) count(t dormouse.EventType) int { return countType(h.log(), t) }

func countType(events []dormouse.Event, t dormouse.EventType) int {
	n := 0
	for _, e := range events {
		if e.Type == t {
			n++
		}
	}
	return n
}

// use returns the first tool call the agent made.
func (h *house) use(t dormouse.EventType) dormouse.EventID {
	h.t.Helper()
	for _, e := range h.log() {
		if e.Type == t {
			return e.ID
		}
	}
	h.t.Fatalf("no %s in the log", t)
	return ""
}

// live runs a test in virtual time.
func live(t *testing.T, f func(t *testing.T, h *house), change ...func(*house)) {
	synctest.Test(t, func(t *testing.T) { f(t, newHouse(t, change...)) })
}

// settle lets virtual time pass until nothing but alarms is left.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// dump words the end of a log.
func dump(log []dormouse.Event) string {
	out := ""
	for _, e := range log[max(0, len(log)-60):] {
		out += fmt.Sprintf("%d %s %s %s\n", e.Seq, e.Type, e.ID, e.Payload)
	}
	return out
}
