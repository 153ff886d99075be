package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/feed"
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
	Agent  Agent
	Logger *slog.Logger
	// Clock tells the time; if nil, the store's or else the machine's does.
	Clock func() time.Time
	// Server is this server as others of a shared store know it, Lease how long it
	// lives for them without a sign, and Peers the way to them. A store for one
	// server alone needs none of it.
	Server Server
	Lease  time.Duration
	Peers  Peers
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
	// Snapshots keeps what workspaces were like; nil if nobody does. SnapshotPolicy is
	// when they are taken where an environment does not say, and Retention how long
	// they are kept.
	Snapshots      *snapshot.Store
	SnapshotPolicy dormouse.SnapshotPolicy
	Retention      dormouse.Retention
	// Refs is what refs of snapshots are authenticated with, and CrossSession says that
	// agents may use those of other sessions, when they say that they mean to.
	Refs         snapshot.Key
	CrossSession bool
	// Relieve gives up some of the room that is held back on the disk for whatever makes
	// room there, and reports whether there was any. It may be nil.
	Relieve func() bool
	// OnCommit is called with what was just committed, in order per session. It
	// must not block.
	OnCommit func(id dormouse.SessionID, events []dormouse.Event)

	family family // the sessions themselves, for actors that have children
	bus    *bus
	seats  *seats
	fence  func(context.Context) error // holds off whoever had a session before; nil if nobody can have
}

// reader reads the logs of the sessions.
func (c *Config) reader() history.Reader {
	return history.Reader{Store: c.Store, Blobs: c.Blobs, Logger: c.Logger}
}

// Agent runs one attempt of a turn.
type Agent interface {
	Run(ctx context.Context, j agent.Journal) error
}

// Sessions is every session of this server: it finds or loads the actor a
// command is for, and wakes sessions when something is due. Of a shared store it
// loads those that no other server has, and asks the others for theirs.
type Sessions struct {
	deps   *Config
	shared store.Shared // nil if the store is this server's alone
	log    history.Reader
	feeds  *feed.Feeds
	visits *visit.Register
	loads  chan struct{} // bounds the actors being loaded at once

	mu      sync.Mutex
	actors  map[dormouse.SessionID]*Actor // guarded by mu
	closing bool                          // guarded by mu
	lease   *lease                        // guarded by mu; nil between two leases
	joined  chan struct{}                 // guarded by mu; closed and replaced when there is a new lease
	owed    map[dormouse.SessionID]bool   // guarded by mu; perhaps ours, and not loaded
	owners  map[dormouse.SessionID]Server // guarded by mu; who had a session when it was last asked for
	kick    chan struct{}
	left    []dormouse.SessionID // guarded by mu; those whose log needs a newer program, though their row does not say so
	doubt   bool                 // of Run: a take may have taken more than it said
	looks   *looks
	living  living
	seats   *seats
	counts  counts
	fences  *fences
	failed  chan error               // told once that this server must end
	unnamed map[dormouse.Digest]bool // of Collect: the blobs that nobody named the last time

	ctx     context.Context //nolint:containedctx // the life of the actors, which no request may end
	stop    context.CancelCauseFunc
	running sync.WaitGroup
	kept    context.Context //nolint:containedctx // the life of the lease, which the actors may not outlive
	letGo   context.CancelFunc
	keeping sync.WaitGroup
}

// New returns sessions that are not yet woken by time: that is Run's work. Those
// of a shared store must Join before.
func New(c Config) (*Sessions, error) {
	if k, ok := c.Driver.(sandbox.Keeper); !ok || !k.KeepsWorkspace() {
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
		deps: &c, shared: shared, log: c.reader(), feeds: feed.New(c.reader()), loads: make(chan struct{}, loadsAtOnce),
		actors: make(map[dormouse.SessionID]*Actor), owed: make(map[dormouse.SessionID]bool), owners: make(map[dormouse.SessionID]Server),
		joined: make(chan struct{}), kick: make(chan struct{}, 1), looks: newLooks(), fences: newFences(), failed: make(chan error, 1),
	}
	background := context.Background() //nolint:forbidigo // actors outlive every request; Close ends them
	s.ctx, s.stop = context.WithCancelCause(background)
	s.kept, s.letGo = context.WithCancel(background)
	s.visits = visit.NewRegister(background)
	if shared == nil {
		s.lease = newLease(s.ctx, Server{}, 0, time.Time{}, &s.counts.stale)
	}
	s.seats = newSeats(c.MaxActive, s.ctx.Done(), s.makeRoom)
	c.family, c.bus, c.seats, c.fence = s, new(bus), s.seats, s.fence
	return s, nil
}

// Loaded counts the actors.
func (s *Sessions) Loaded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.actors)
}

// actor finds the actor of a session, or starts one.
func (s *Sessions) actor(ctx context.Context, id dormouse.SessionID) (*Actor, error) {
	s.mu.Lock()
	a := s.actors[id]
	s.mu.Unlock()
	if a != nil {
		return a, nil
	}
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("session: %w", dormouse.ErrNotFound)
	}
	if err := s.held(ctx); err != nil {
		return nil, err
	}
	if _, err := s.deps.Store.Session(ctx, id); err != nil {
		return nil, err
	}
	return s.load(id)
}

// load starts the actor of a session that exists, under the lease of now.
func (s *Sessions) load(id dormouse.SessionID) (*Actor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.actors[id]; a != nil {
		return a, nil
	}
	if s.closing {
		return nil, dormouse.ErrClosing
	}
	if s.lease == nil {
		return nil, fmt.Errorf("load %s: %w", id, dormouse.ErrLeaseLost)
	}
	a := newActor(id, s.deps, s.feeds, s.lease)
	s.actors[id] = a
	s.running.Add(1)
	a.lease.actors.Go(func() {
		defer s.running.Done()
		s.live(a)
	})
	return a, nil
}

// live runs an actor to its end.
func (s *Sessions) live(a *Actor) {
	s.loads <- struct{}{}
	a.loaded = sync.OnceFunc(func() { <-s.loads; close(a.ready) })
	err := a.run(a.lease.ctx)
	a.loaded()
	s.part(a, err)
	s.mu.Lock()
	delete(s.actors, a.id)
	s.mu.Unlock()
	close(a.done)
	s.nudge() // it may have left something due
	s.look(a.id)
}

// part sees an actor off: why it ended, and what becomes of its session.
func (s *Sessions) part(a *Actor, err error) {
	if _, moved := elsewhere(err); moved || errors.Is(err, errRemoved) {
		s.seats.leave(a.id)
		return // it is not ours, or is no more
	}
	if errors.Is(err, dormouse.ErrNewerLog) {
		s.giveUp(a, err)
		return
	}
	over := context.Cause(a.lease.ctx)
	if err != nil && (over == nil || !errors.Is(err, over)) {
		a.slog.WarnContext(s.ctx, "actor dropped", "error", err)
		select {
		case <-a.lease.ctx.Done():
		case <-time.After(retryFull): // what fails at once must not spin
		}
	}
	if s.shared != nil {
		s.seats.leave(a.id)
	}
	if s.shared != nil && a.lease.ctx.Err() == nil { // what a server has at its end goes with its lease
		s.release(a, err)
	}
}

// giveUp lets go of a session at once that only a newer program can fold. If the database
// refused the claim there is nothing to let go of.
func (s *Sessions) giveUp(a *Actor, err error) {
	a.slog.InfoContext(s.ctx, "session left to servers of a newer version", "error", err)
	s.seats.leave(a.id)
	if a.epoch == 0 {
		return
	}
	s.leaveToOthers(a.id)
	if s.shared != nil && a.lease.ctx.Err() == nil {
		s.release(a, err)
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
}

// Close stops the actors: each gives its attempts back, keeps its turns and lets
// go of its sandbox, which lives on. Then the lease is given up. An actor that
// cannot be stopped in time keeps it until it runs out.
func (s *Sessions) Close(ctx context.Context) error {
	s.EndFollowers()
	leaving, cancel := context.WithTimeout(ctx, 2*time.Second)
	_ = s.visits.Wait(leaving) // who does not leave by then is cut off
	cancel()
	s.stop(dormouse.ErrClosing)
	err := wait(ctx, &s.running)
	s.letGo()
	s.keeping.Wait()
	s.seats.asking.Wait()
	if err != nil {
		return fmt.Errorf("stop actors: %w", err)
	}
	return s.leave(ctx)
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
