package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
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
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/sessiontest"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withDatabase{m}) }

// withDatabase stops the database that tests may have started before anybody
// looks for what is left.
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

	lines *snapshot.Store // nil if nothing is kept
	dir   string          // where lines are
	keep  dormouse.Retention
	heard func(model.Request) // what a model is asked
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
		Agent:  agent.New(oneModel{h.model, h.heard}, tool.Builtin()),
		Logger: slog.New(slog.DiscardHandler), Clock: h.now, MaxActive: h.most,
		Snapshots: h.lines, Retention: h.keep,
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

func (h *house) prompt(clientID, text string) error {
	content := []dormouse.Block{dormouse.Text(text)}
	raw, _ := json.Marshal(content)
	return h.do(session.Prompt{ID: dormouse.PromptID(h.id, clientID), Body: dormouse.DigestOf(raw), Content: content})
}

func (h *house) mustPrompt(clientID, text string) {
	h.t.Helper()
	if err := h.prompt(clientID, text); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) do(v session.Verb) error {
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
	if row.Phase != session.PhaseOf(state) || row.Status != session.StatusOf(state) {
		h.t.Errorf("row shows %s/%s, the log says %s/%s", row.Phase, row.Status, session.PhaseOf(state), session.StatusOf(state))
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

type oneModel struct {
	m     *scripted.Model
	heard func(model.Request)
}

func (o oneModel) Model(name string) (model.Model, error) {
	if name != "scripted" {
		return nil, errors.New("there is no model " + name)
	}
	if o.heard == nil {
		return o.m, nil
	}
	return listening{o.m, o.heard}, nil
}

// listening is a model whose requests are looked at.
type listening struct {
	*scripted.Model
	heard func(model.Request)
}

func (l listening) Reply(ctx context.Context, r model.Request, delta func(model.Delta) error) (model.Reply, error) {
	l.heard(r)
	return l.Model.Reply(ctx, r, delta)
}

// boxes is a driver whose sandboxes outlive servers. A command "effect NAME"
// counts, "sleep D" takes its time.
type boxes struct {
	mu      sync.Mutex
	boxes   map[boxName]*fakeBox
	effects map[string]int
	broken  error
	slow    time.Duration // what a sandbox takes to start
	created int
	calls   int          // of the driver
	mute    int          // how many links to come reach no runner
	usage   runner.Usage // what goes on in each
	removed []dormouse.SessionID
}

// boxName is what a sandbox is found by again.
type boxName struct {
	Session    dormouse.SessionID
	Generation uint64
}

func (b *boxes) KeepsWorkspace() bool { return true }

// Remove ends whatever a session still has.
func (b *boxes) Remove(_ context.Context, id dormouse.SessionID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.boxes {
		if name.Session == id {
			b.end(name)
			delete(b.boxes, name)
		}
	}
	b.removed = append(b.removed, id)
	return nil
}

func (b *boxes) Create(_ context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.slow > 0 {
		b.mu.Unlock()
		time.Sleep(b.slow)
		b.mu.Lock()
	}
	if b.broken != nil {
		return nil, b.broken
	}
	b.created++
	name := boxName{spec.Fence.Session, spec.Fence.Generation}
	box := &fakeBox{home: b, name: name, epoch: spec.Fence.Epoch, ops: make(map[dormouse.OpID]*fakeOp), gone: make(chan struct{})}
	b.boxes[name] = box
	b.mute--
	return &fakeLink{fakeBox: box, epoch: spec.Fence.Epoch, mute: b.mute >= 0, cut: make(chan struct{})}, nil
}

func (b *boxes) Attach(_ context.Context, h sandbox.Handle, f runner.Fence) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	box := b.boxes[boxName{f.Session, f.Generation}]
	if box == nil || box.dead {
		return nil, sandbox.ErrGone
	}
	if f.Epoch < box.epoch {
		return nil, runner.ErrStale
	}
	box.epoch = f.Epoch
	return &fakeLink{fakeBox: box, epoch: f.Epoch, cut: make(chan struct{})}, nil
}

func (b *boxes) Stop(_ context.Context, h sandbox.Handle) error {
	var name boxName
	if err := json.Unmarshal(h, &name); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	b.end(name)
	return nil
}

// kill ends the sandboxes of a generation.
func (b *boxes) kill(generation uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.boxes {
		if name.Generation == generation {
			b.end(name)
		}
	}
}

func (b *boxes) end(name boxName) {
	if box := b.boxes[name]; box != nil && !box.dead {
		box.dead = true
		close(box.gone)
	}
}

// cut makes every link of the servers so far useless.
func (b *boxes) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, box := range b.boxes {
		box.epoch++ // as the next bind would
	}
}

func (b *boxes) setBroken(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
}

func (b *boxes) called() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

func (b *boxes) effect(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.effects[name]
}

type fakeBox struct {
	home  *boxes
	name  boxName
	epoch uint64
	dead  bool
	ops   map[dormouse.OpID]*fakeOp
	gone  chan struct{}
}

type fakeOp struct {
	done   chan struct{}
	kill   chan struct{}
	result runner.Result
}

type fakeLink struct {
	*fakeBox
	epoch uint64
	mute  bool
	cut   chan struct{}
}

func (l *fakeLink) Handle() sandbox.Handle {
	raw, _ := json.Marshal(l.name)
	return raw
}
func (l *fakeLink) Gone() <-chan struct{} { return l.gone }
func (l *fakeLink) Close() error          { return nil }

func (l *fakeLink) Start(_ context.Context, c runner.Call) error {
	l.home.mu.Lock()
	defer l.home.mu.Unlock()
	if l.dead {
		return sandbox.ErrGone
	}
	if l.epoch < l.fakeBox.epoch {
		return runner.ErrStale
	}
	if l.mute {
		return runner.ErrUnreachable
	}
	if l.ops[c.Op] != nil {
		return nil
	}
	op := &fakeOp{done: make(chan struct{}), kill: make(chan struct{})}
	l.ops[c.Op] = op
	go l.act(op, c)
	return nil
}

func (l *fakeLink) Run(ctx context.Context, c runner.Call, started func(), out func([]byte)) (runner.Result, error) {
	if err := l.Start(ctx, c); err != nil {
		return runner.Result{}, err
	}
	started()
	return l.Wait(ctx, c.Op, out)
}

func (l *fakeLink) act(op *fakeOp, c runner.Call) {
	defer close(op.done)
	if c.Exec == nil {
		l.home.mu.Lock()
		l.home.effects[string(c.Kind)]++
		l.home.mu.Unlock()
		return
	}
	for step := range strings.SplitSeq(c.Exec.Command, ";") {
		verb, arg, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch verb {
		case "effect":
			l.home.mu.Lock()
			l.home.effects[arg]++
			l.home.mu.Unlock()
		case "sleep":
			d, _ := time.ParseDuration(arg)
			select {
			case <-time.After(d):
			case <-op.kill:
				op.result = runner.Result{Killed: true, Exit: 137}
				return
			case <-l.gone:
				return
			}
		case "print":
			op.result.Output = append(op.result.Output, strings.Repeat("x", 100_000)...)
		}
	}
}

func (l *fakeLink) Wait(ctx context.Context, id dormouse.OpID, _ func([]byte)) (runner.Result, error) {
	l.home.mu.Lock()
	op := l.ops[id]
	l.home.mu.Unlock()
	if op == nil {
		return runner.Result{}, runner.ErrNeverSeen
	}
	select {
	case <-op.done:
		return op.result, nil
	case <-l.gone:
		return runner.Result{}, sandbox.ErrGone
	case <-ctx.Done():
		return runner.Result{}, context.Cause(ctx)
	}
}

func (l *fakeLink) Ask(_ context.Context, id dormouse.OpID) (runner.Report, error) {
	return runner.Report{}, errors.New("not used")
}

func (l *fakeLink) Kill(_ context.Context, id dormouse.OpID) error {
	l.home.mu.Lock()
	defer l.home.mu.Unlock()
	if op := l.ops[id]; op != nil {
		select {
		case <-op.kill:
		default:
			close(op.kill)
		}
	}
	return nil
}

func (l *fakeLink) Forget(id dormouse.OpID) {
	l.home.mu.Lock()
	defer l.home.mu.Unlock()
	delete(l.ops, id)
}

// mapBlobs is a blob store in a map.
type mapBlobs struct {
	mu  sync.Mutex
	m   map[dormouse.Digest][]byte
	put map[dormouse.Digest]time.Time
	bad error // how puts fail, if not nil
}

// fail has every put fail from now on, or none.
func (b *mapBlobs) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = err
}

func newBlobs() *mapBlobs {
	return &mapBlobs{m: make(map[dormouse.Digest][]byte), put: make(map[dormouse.Digest]time.Time)}
}

func (b *mapBlobs) Put(_ context.Context, raw []byte) (dormouse.Digest, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bad != nil {
		return "", b.bad
	}
	d := dormouse.DigestOf(raw)
	b.m[d], b.put[d] = raw, time.Now()
	return d, nil
}

func (b *mapBlobs) Get(_ context.Context, d dormouse.Digest) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if raw, ok := b.m[d]; ok {
		return raw, nil
	}
	return nil, dormouse.ErrNotFound
}

func (b *mapBlobs) PutFrom(ctx context.Context, r io.Reader) (dormouse.Digest, int64, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return "", 0, err
	}
	d, err := b.Put(ctx, raw)
	return d, int64(len(raw)), err
}

func (b *mapBlobs) Open(ctx context.Context, d dormouse.Digest) (io.ReadCloser, int64, error) {
	raw, err := b.Get(ctx, d)
	return io.NopCloser(bytes.NewReader(raw)), int64(len(raw)), err
}

func (b *mapBlobs) Delete(context.Context, dormouse.Digest) error { return nil }

// faultyStore fails appends on demand.
type faultyStore struct {
	store.Store
	mu     sync.Mutex
	fail   func(b store.Batch) (before, after error)
	linger time.Duration // between what is durable and the answer that it is
	create error         // instead of making a session
}

func (f *faultyStore) failCreate(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.create = err
}

func (f *faultyStore) Create(ctx context.Context, b store.Batch) error {
	f.mu.Lock()
	err := f.create
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Store.Create(ctx, b)
}

func (f *faultyStore) set(fail func(b store.Batch) (before, after error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faultyStore) Append(ctx context.Context, b store.Batch) error {
	f.mu.Lock()
	fail, linger := f.fail, f.linger
	f.mu.Unlock()
	defer time.Sleep(linger)
	if fail == nil {
		return f.Store.Append(ctx, b)
	}
	before, after := fail(b)
	if before != nil {
		return before
	}
	if err := f.Store.Append(ctx, b); err != nil {
		return err
	}
	return after
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
