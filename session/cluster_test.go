package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/model/scripted"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
)

// lease is that of the servers in these tests.
const lease = 3 * time.Second

// cluster is several servers in miniature that share a store, a blob store and a
// machine for their sandboxes.
type cluster struct {
	t       *testing.T
	store   *memory.Store
	blobs   *mapBlobs
	boxes   *boxes
	model   *scripted.Model
	servers []*member

	mu    sync.Mutex
	fault func(law.Verb) error // guarded by mu; what becomes of an answer on its way back
	// meanwhile happens while a command is on its way.
	meanwhile func(dormouse.SessionID, law.Verb)

	relays atomic.Int64  // streams between servers
	dial   time.Duration // how long it takes to find out that no server is there
}

// member is one server of a cluster.
type member struct {
	*house
	fleet *cluster
	view  *cutStore
	dead  atomic.Bool // it cannot be reached
	hung  atomic.Bool // it accepts requests and sends no answer
	gone  bool        // it was stopped by the test
}

// together runs a test on n servers in virtual time.
func together(t *testing.T, n int, test func(t *testing.T, f *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		f := &cluster{
			t: t, store: new(memory.Store), blobs: newBlobs(),
			boxes: &boxes{boxes: make(map[boxName]*fakeBox), effects: make(map[string]int)}, model: scripted.New(scripted.Options{}),
		}
		t.Cleanup(f.boxes.endAll)
		for range n {
			f.join()
		}
		test(t, f)
	})
}

// join starts one more server.
func (f *cluster) join() *member {
	f.t.Helper()
	view := &cutStore{Server: f.store.Server()}
	m := &member{fleet: f, view: view, house: &house{
		t: f.t, store: &faultyStore{Store: view}, blobs: f.blobs, boxes: f.boxes, model: f.model,
	}}
	name := fmt.Sprint("server ", len(f.servers))
	f.servers = append(f.servers, m)
	s, err := session.New(session.Config{
		Store: view, Blobs: f.blobs, Driver: f.boxes, Agent: agent.New(oneModel{m: f.model}, tool.Builtin()),
		Logger: slog.New(slog.DiscardHandler), Server: fleet.Server{Name: name, Addr: name}, Lease: lease, Peers: f,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(f.t.Context())
	m.live, m.stop = s, stop
	if err := s.Join(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	go func() { _ = s.Run(ctx) }()
	f.t.Cleanup(func() {
		view.giveBack()
		m.close()
	})
	return m
}

// on returns a server as it sees the session of another.
func (m *member) on(other *member) *member {
	m.id = other.id
	return m
}

func (m *member) close() {
	if !m.gone {
		m.gone = true
		m.house.close()
	}
}

// kill ends a server as kill -9 does, as far as other servers can tell: it does
// not answer, and nothing of it reaches the store any more.
func (m *member) kill() {
	m.dead.Store(true)
	m.view.cut()
	m.stop()
}

// reach finds the server a route leads to.
func (f *cluster) reach(r fleet.Route) (*member, error) {
	for _, m := range f.servers {
		self, ok := m.live.Self()
		if !m.dead.Load() && (ok && self.Incarnation == r.To.Incarnation || m.hung.Load()) {
			return m, nil
		}
	}
	return nil, fleet.ErrUnreached
}

func (f *cluster) Do(ctx context.Context, r fleet.Route, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error {
	m, err := f.reach(r)
	if err != nil {
		time.Sleep(f.dial)
		return err
	}
	if m.hung.Load() {
		<-ctx.Done()
		return dormouse.ErrUnknownOutcome
	}
	if f.meanwhile != nil {
		f.meanwhile(id, v)
	}
	err = m.live.DoHere(ctx, id, by, v)
	if _, elsewhere := errors.AsType[*fleet.ElsewhereError](err); elsewhere {
		return fleet.ErrUnreached
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault != nil {
		if lost := f.fault(v); lost != nil {
			return lost
		}
	}
	return err
}

func (f *cluster) Follow(ctx context.Context, r fleet.Route, id dormouse.SessionID, after uint64, each func(feed.Relayed)) error {
	m, err := f.reach(r)
	if err != nil {
		return err
	}
	follower, err := m.live.FollowHere(id, after)
	if err != nil {
		return err
	}
	defer follower.Close()
	f.relays.Add(1)
	defer f.relays.Add(-1)
	for {
		items, err := follower.Next(ctx)
		if err != nil || m.dead.Load() {
			return err
		}
		for _, i := range items {
			if i.Delta != nil {
				each(feed.Relayed{Delta: i.Delta})
				continue
			}
			each(feed.Relayed{Event: &i.Event})
		}
	}
}

// endAll ends every sandbox.
func (b *boxes) endAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.boxes {
		b.end(name)
	}
}

// cutStore is a view of the store behind a wire that can be cut. Requests on the
// wire at that time arrive when the wire is whole again, even if their callers
// have given up.
type cutStore struct {
	*memory.Server
	mu      sync.Mutex
	broken  chan struct{} // guarded by mu; closed when the wire is whole again
	written atomic.Int64  // appends that were carried out
	lose    atomic.Int64  // how many answers of Take and Release are lost
	slow    atomic.Int64  // how long the answer of Release takes
	freezes atomic.Bool   // a lookup of a prompt waits for the wire, whatever happens
}

func (c *cutStore) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = make(chan struct{})
	}
}

func (c *cutStore) giveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		close(c.broken)
		c.broken = nil
	}
}

// pass waits for the wire, or until the caller gives up.
func (c *cutStore) pass(ctx context.Context) error {
	c.mu.Lock()
	broken := c.broken
	c.mu.Unlock()
	if broken == nil {
		return nil
	}
	select {
	case <-broken:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *cutStore) Append(ctx context.Context, b store.Batch) error {
	ctx = context.WithoutCancel(ctx)
	_ = c.pass(ctx)
	err := c.Server.Append(ctx, b)
	if err == nil {
		c.written.Add(1)
	}
	return err
}

func (c *cutStore) Claim(ctx context.Context, id dormouse.SessionID, above store.Epoch) (store.Epoch, error) {
	if err := c.pass(ctx); err != nil {
		return 0, err
	}
	return c.Server.Claim(ctx, id, above)
}

func (c *cutStore) Session(ctx context.Context, id dormouse.SessionID) (dormouse.SessionRow, error) {
	if err := c.pass(ctx); err != nil {
		return dormouse.SessionRow{}, err
	}
	return c.Server.Session(ctx, id)
}

func (c *cutStore) ClientIDs(ctx context.Context, id dormouse.SessionID, ids ...string) (map[string]uint64, error) {
	if c.freezes.Load() {
		ctx = context.WithoutCancel(ctx)
		_ = c.pass(ctx)
	}
	return c.Server.ClientIDs(ctx, id, ids...)
}

func (c *cutStore) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	if err := c.pass(ctx); err != nil {
		return nil, err
	}
	return c.Server.Read(ctx, id, after, limit)
}

func (c *cutStore) Join(ctx context.Context, s store.Server, d time.Duration) (store.Server, error) {
	if err := c.pass(ctx); err != nil {
		return s, err
	}
	return c.Server.Join(ctx, s, d)
}

func (c *cutStore) Renew(ctx context.Context) error {
	if err := c.pass(ctx); err != nil {
		return err
	}
	return c.Server.Renew(ctx)
}

func (c *cutStore) Take(ctx context.Context, t time.Time, limit int, except ...dormouse.SessionID) ([]dormouse.SessionID, error) {
	if err := c.pass(ctx); err != nil {
		return nil, err
	}
	ids, err := c.Server.Take(ctx, t, limit, except...)
	if len(ids) > 0 && c.lose.Add(-1) >= 0 {
		return nil, errWire
	}
	return ids, err
}

func (c *cutStore) Release(ctx context.Context, id dormouse.SessionID, epoch store.Epoch) error {
	if err := c.pass(ctx); err != nil {
		return err
	}
	if c.lose.Add(-1) >= 0 {
		return errWire
	}
	defer time.Sleep(time.Duration(c.slow.Load()))
	return c.Server.Release(ctx, id, epoch)
}

func (c *cutStore) Where(ctx context.Context, ids ...dormouse.SessionID) ([]store.Location, error) {
	if err := c.pass(ctx); err != nil {
		return nil, err
	}
	return c.Server.Where(ctx, ids...)
}

var errWire = errors.New("the wire broke")
