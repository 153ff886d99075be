package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/actor"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/visit"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/store"
)

// Config is what sessions are made of.
type Config struct {
	Store  store.Store
	Blobs  blob.Store
	Driver sandbox.Driver
	Agent  actor.Agent
	Logger *slog.Logger
	// Clock tells the time; if nil, the store's or else the machine's does.
	Clock func() time.Time
	// Server is this server as others of a shared store know it, Lease how long its lease
	// lasts without being renewed, and Peers the client for the others. A store for one
	// server alone needs none of them.
	Server fleet.Server
	Lease  time.Duration
	Peers  fleet.Peers
	// Fencing is where the servers of this place sign for the leases they work under,
	// so that one which holds on can be ended; nil if none is.
	Fencing *fencing.Register
	// DropAfter is how long an actor that has nothing to do stays loaded.
	DropAfter time.Duration
	// IdleTimeout is how long a sandbox that this server starts may be idle,
	// whatever its session says; 0 is as long as that says.
	IdleTimeout time.Duration
	// MaxActive is how many sandboxes may be awake at once. At the bound the session
	// that has been idle the longest is put to sleep. 0 is no bound.
	MaxActive int
	// Snapshots stores the snapshots of workspaces; nil if none are taken. SnapshotPolicy
	// says when they are taken if an environment does not, and Retention how long they
	// are kept.
	Snapshots      *snapshot.Store
	SnapshotPolicy dormouse.SnapshotPolicy
	Retention      dormouse.Retention
	// Refs is what refs of snapshots are authenticated with, and CrossSession says that
	// agents may use those of other sessions, when they say that they mean to.
	Refs         snapshot.Key
	CrossSession bool
	// ReleaseReserve frees part of the disk space that is reserved for deletions, and
	// reports whether there was any left. It may be nil.
	ReleaseReserve func() bool
	// OnCommit is called with what was just committed, in order per session. It
	// must not block.
	OnCommit func(id dormouse.SessionID, events []dormouse.Event)
}

// reader reads the logs of the sessions.
func (c *Config) reader() history.Reader {
	return history.Reader{Store: c.Store, Blobs: c.Blobs, Logger: c.Logger}
}

// Sessions is every session of this server: it finds or loads the actor a
// command is for, and wakes sessions when something is due. Of a shared store it
// loads those that no other server has, and asks the others for theirs.
type Sessions struct {
	config *Config
	log    history.Reader
	feeds  *feed.Feeds
	visits *visit.Register
	fleet  *fleet.Fleet
	slots  *slots
	bus    bus
	// actorConfig is what every actor is made with.
	actorConfig *actor.Config
	loads       chan struct{} // bounds the actors being loaded at once
	kick        chan struct{}

	mu          sync.Mutex
	actors      map[dormouse.SessionID]*entry // guarded by mu
	closing     bool                          // guarded by mu
	leftToNewer []dormouse.SessionID          // guarded by mu; those whose log needs a newer program, though their row does not say so

	unnamed map[dormouse.Digest]bool // of Collect: the blobs that nothing named the last time

	ctx     context.Context //nolint:containedctx // the life of the actors, which no request may end
	stop    context.CancelCauseFunc
	running sync.WaitGroup
}

// entry is an actor of this server, and how far it is.
type entry struct {
	*actor.Actor
	id    dormouse.SessionID
	lease *fleet.Lease
	ready chan struct{} // closed when it is loaded, or cannot be
	done  chan struct{} // closed when nothing of it is left
}

// reloadPause is how long an actor that ended with an error keeps its place, so that one
// that fails at once does not spin.
const reloadPause = 250 * time.Millisecond

// New returns sessions that are not yet woken by time: that is Run's work. Those
// of a shared store must Join before.
func New(c Config) (*Sessions, error) {
	if k, ok := c.Driver.(sandbox.Persistent); !ok || !k.KeepsWorkspace() {
		return nil, errors.New("the sandbox driver keeps no workspace, and there is nowhere to save one")
	}
	shared, _ := c.Store.(store.Shared)
	if shared != nil && (c.Peers == nil || c.Lease <= 0) {
		return nil, errors.New("the store is shared, and there is no lease or no way to the other servers")
	}
	switch {
	case c.Clock != nil:
	case shared != nil:
		c.Clock = shared.Now
	default:
		c.Clock = time.Now
	}
	if c.DropAfter == 0 {
		c.DropAfter = 30 * time.Second
	}
	const loadsAtOnce = 32
	s := &Sessions{
		config: &c, log: c.reader(), feeds: feed.New(c.reader()), loads: make(chan struct{}, loadsAtOnce), kick: make(chan struct{}, 1),
		actors: make(map[dormouse.SessionID]*entry),
	}
	background := context.Background() //nolint:forbidigo // actors outlive every request; Close ends them
	s.ctx, s.stop = context.WithCancelCause(background)
	s.visits = visit.NewRegister(background)
	s.fleet = fleet.New(s.ctx, fleet.Config{
		Shared: shared, Server: c.Server, TTL: c.Lease, Peers: c.Peers, Fencing: c.Fencing, Logger: c.Logger, Feeds: s.feeds,
		Unloaded: s.unloaded, Loaded: s.Loaded, OnRejoin: s.nudge,
	})
	s.slots = newSlots(c.MaxActive, s.ctx.Done(), s.evict)
	s.actorConfig = &actor.Config{
		Store: c.Store, Blobs: c.Blobs, Driver: c.Driver, Agent: c.Agent, Logger: c.Logger, Clock: c.Clock, Feeds: s.feeds,
		DropAfter: c.DropAfter, IdleTimeout: c.IdleTimeout,
		Snapshots: c.Snapshots, SnapshotPolicy: c.SnapshotPolicy, Retention: c.Retention, Refs: c.Refs, CrossSession: c.CrossSession,
		ReleaseReserve: c.ReleaseReserve, Committed: s.committed, Fence: s.fleet.Fence,
		Sessions: actorView{s}, Workspaces: actorView{s}, Slots: s.slots,
	}
	return s, nil
}

// Loaded counts the actors.
func (s *Sessions) Loaded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.actors)
}

// loadedActor is the actor of a session, nil if there is none here.
func (s *Sessions) loadedActor(id dormouse.SessionID) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.actors[id]
}

// actor finds the actor of a session, or starts one.
func (s *Sessions) actor(ctx context.Context, id dormouse.SessionID) (*entry, error) {
	if a := s.loadedActor(id); a != nil {
		return a, nil
	}
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("session: %w", dormouse.ErrNotFound)
	}
	if err := s.fleet.AwaitLease(ctx); err != nil {
		return nil, err
	}
	if _, err := s.config.Store.Session(ctx, id); err != nil {
		return nil, err
	}
	return s.load(id)
}

// load starts the actor of a session that exists, under the present lease.
func (s *Sessions) load(id dormouse.SessionID) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.actors[id]; a != nil {
		return a, nil
	}
	if s.closing {
		return nil, dormouse.ErrClosing
	}
	lease, leave, err := s.fleet.Enter()
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", id, err)
	}
	a := &entry{Actor: actor.New(id, s.actorConfig, lease), id: id, lease: lease, ready: make(chan struct{}), done: make(chan struct{})}
	s.actors[id] = a
	s.running.Go(func() {
		defer leave()
		s.run(a)
	})
	return a, nil
}

// run runs an actor to its end.
func (s *Sessions) run(a *entry) {
	s.loads <- struct{}{}
	loaded := sync.OnceFunc(func() { <-s.loads; close(a.ready) })
	err := a.Run(a.lease.Context(), loaded)
	loaded()
	s.retire(a, err)
	s.mu.Lock()
	delete(s.actors, a.id)
	s.mu.Unlock()
	close(a.done)
	s.nudge() // it may have left something due
	s.fleet.LookUp(a.id)
}

// retire follows the end of an actor: it logs why, and frees or gives back the session.
func (s *Sessions) retire(a *entry, err error) {
	if _, moved := fleet.Elsewhere(err); moved || errors.Is(err, actor.ErrRemoved) {
		s.slots.Release(a.id)
		return // it is not ours, or is no more
	}
	if errors.Is(err, dormouse.ErrNewerLog) {
		s.leaveNewer(a, err)
		return
	}
	over := context.Cause(a.lease.Context())
	if err != nil && (over == nil || !errors.Is(err, over)) {
		s.config.Logger.WarnContext(s.ctx, "actor dropped", "session", a.id, "error", err)
		select {
		case <-a.lease.Context().Done():
		case <-time.After(reloadPause): // what fails at once must not spin
		}
	}
	if !s.fleet.Alone() {
		s.slots.Release(a.id)
	}
	if !s.fleet.Alone() && a.lease.Context().Err() == nil { // what a server has at its end goes with its lease
		s.fleet.Release(a.lease, a.id, a.Epoch(), err)
	}
}

// leaveNewer releases a session at once that only a newer program can fold. If the
// database refused the claim there is nothing to release.
func (s *Sessions) leaveNewer(a *entry, err error) {
	s.config.Logger.InfoContext(s.ctx, "session left to servers of a newer version", "session", a.id, "error", err)
	s.slots.Release(a.id)
	if a.Epoch() == 0 {
		return
	}
	s.leaveToNewer(a.id)
	if !s.fleet.Alone() && a.lease.Context().Err() == nil {
		s.fleet.Release(a.lease, a.id, a.Epoch(), err)
	}
}

// nudge has Run look for due sessions now.
func (s *Sessions) nudge() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// EndFollowers tells every follower and visitor that the server goes away.
func (s *Sessions) EndFollowers() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.feeds.End(dormouse.ErrClosing)
	s.visits.Drain()
	s.fleet.Drain()
}

// Close stops the actors: each gives its attempts back, keeps its turns and closes its
// sandbox, which lives on. Then the lease is given up. If an actor cannot be stopped in
// time, the lease is kept until it runs out.
func (s *Sessions) Close(ctx context.Context) error {
	s.EndFollowers()
	leaving, cancel := context.WithTimeout(ctx, 2*time.Second)
	_ = s.visits.Wait(leaving) // visitors that have not left by then are cut off
	cancel()
	s.stop(dormouse.ErrClosing)
	err := wait(ctx, &s.running)
	if err == nil {
		err = s.fleet.Wait(ctx)
	}
	s.fleet.StopRenewing()
	s.slots.evicting.Wait()
	if err != nil {
		return fmt.Errorf("stop actors: %w", err)
	}
	return s.fleet.Leave(ctx)
}

// wait waits for a group, or until ctx ends.
func wait(ctx context.Context, g *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
