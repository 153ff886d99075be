// Package fleet is one server among those that share a store: the lease under which it
// writes sessions, which other server owns a session and how that one is asked, and how a
// server that still acts without a lease is fenced. A store for one server alone has a
// lease that is never lost, and no other servers.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/store"
)

// What the database calls servers.
type (
	// Server is one of the servers that share a store.
	Server = store.Server
	// ElsewhereError says which other server owns a session.
	ElsewhereError = store.ElsewhereError
)

// ErrStaleSender means that a server asked which has no lease any more, or which has lost
// the session that it asked for.
var ErrStaleSender = store.ErrStaleSender

// ErrNoLease means that the server waited for its next lease in vain.
var ErrNoLease = fmt.Errorf("this server has no lease now: %w", dormouse.ErrLeaseLost)

// Config is what a server needs to be one of several.
type Config struct {
	// Shared is the store; nil if it is this server's alone, which needs no Server, TTL,
	// Peers and Fencing.
	Shared store.Shared
	// Server is this server as the others know it, TTL how long its lease lasts without
	// being renewed, and Peers the way to the others.
	Server Server
	TTL    time.Duration
	Peers  Peers
	// Fencing is where the servers of this machine sign for the leases they work under,
	// so that one which holds on can be ended; nil if none is.
	Fencing *fencing.Register
	Logger  *slog.Logger
	// Feeds get what other servers write to sessions that are followed here.
	Feeds *feed.Feeds
	// Unloaded returns those of the sessions that have no actor here.
	Unloaded func([]dormouse.SessionID) []dormouse.SessionID
	// Loaded is how many sessions have one.
	Loaded func() int
	// OnRejoin is called when a lost lease was replaced by a new one.
	OnRejoin func()
}

// Fleet is this server among those that share a store.
type Fleet struct {
	config  Config
	fences  *fences
	members members
	lookups *lookups
	counts  counters
	failed  chan error // receives once why this server must end
	inDoubt bool       // of the goroutine that calls Take: it may have taken more than it returned

	mu       sync.Mutex
	lease    *Lease                        // guarded by mu; nil between two leases
	joined   chan struct{}                 // guarded by mu; closed and replaced when there is a new lease
	draining bool                          // guarded by mu
	owners   map[dormouse.SessionID]Server // guarded by mu; the owners of sessions, as of the last answer
	pending  map[dormouse.SessionID]bool   // guarded by mu; claims that may be ours, of sessions that are not loaded

	life    context.Context //nolint:containedctx // of the leases and of what watches the others
	running sync.WaitGroup
	kept    context.Context //nolint:containedctx // of the renewing, which outlives life
	unkeep  context.CancelFunc
	keeping sync.WaitGroup
}

// New returns a server that is alone, or has yet to Join. All it does under a lease is told
// to end when life does; the lease itself is kept until StopRenewing.
func New(life context.Context, c Config) *Fleet {
	f := &Fleet{
		config: c, life: life, fences: newFences(), lookups: newLookups(), failed: make(chan error, 1), joined: make(chan struct{}),
		owners: make(map[dormouse.SessionID]Server), pending: make(map[dormouse.SessionID]bool),
	}
	f.kept, f.unkeep = context.WithCancel(context.WithoutCancel(life))
	if c.Shared == nil {
		f.lease = newLease(life, Server{}, 0, time.Time{}, &f.counts.stale)
	}
	return f
}

// Alone reports whether the store is this server's alone.
func (f *Fleet) Alone() bool { return f.config.Shared == nil }

// Join makes this server one of those that share the store, and keeps it one until
// StopRenewing. The server of a store for one alone has joined already.
func (f *Fleet) Join(ctx context.Context) error {
	if f.Alone() {
		return nil
	}
	l, err := f.join(ctx)
	if err != nil {
		return err
	}
	f.keeping.Go(func() { f.keep(l) })
	f.running.Go(f.watch)
	f.running.Go(f.listen)
	if f.config.Fencing != nil {
		f.running.Go(f.fenceAlways)
	}
	return nil
}

// Self is this server among those that share the store, as long as it has a
// lease.
func (f *Fleet) Self() (Server, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lease == nil || f.Alone() {
		return Server{}, false
	}
	return f.lease.server, f.lease.Holds() == nil
}

// Now is the time by the clock that all servers of a shared store go by, which
// is the database's. A server without a lease may have lost touch with it: with
// dormouse.ErrLeaseLost the time cannot be relied on.
func (f *Fleet) Now() (time.Time, error) {
	if f.Alone() {
		return time.Time{}, dormouse.ErrLeaseLost
	}
	if _, ok := f.Self(); !ok {
		return f.config.Shared.Now(), dormouse.ErrLeaseLost
	}
	return f.config.Shared.Now(), nil
}

// Failed receives once why this server must end, because it gets no lease any more: another
// one is about to end it, or has brought the database to a version that it may not use.
func (f *Fleet) Failed() <-chan error { return f.failed }

// Enter returns the present lease and counts one more thing that goes on under it, until
// leave is called.
func (f *Fleet) Enter() (l *Lease, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return nil, nil, dormouse.ErrClosing
	}
	if f.lease == nil {
		return nil, nil, dormouse.ErrLeaseLost
	}
	return f.lease, f.lease.Enter(), nil
}

// Under runs work that belongs to no actor under the present lease: on what all servers
// share, or for a request. It is cancelled when the lease ends, which is not given up
// before the work has ended.
func (f *Fleet) Under(ctx context.Context, do func(context.Context) error) error {
	if err := f.AwaitLease(ctx); err != nil {
		return err
	}
	l, leave, err := f.Enter()
	if err != nil {
		return dormouse.ErrClosing
	}
	defer leave()
	if err := l.Holds(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(fencing.Under(ctx, l))
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	return do(ctx)
}

// AwaitLease waits for a server between two leases to have the next one, but no longer
// than a lease lasts.
func (f *Fleet) AwaitLease(ctx context.Context) error {
	var late <-chan time.Time
	for {
		f.mu.Lock()
		l, joined, draining := f.lease, f.joined, f.draining
		f.mu.Unlock()
		if l != nil {
			return nil
		}
		if draining {
			return dormouse.ErrClosing
		}
		if late == nil {
			late = time.After(f.config.TTL)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return ErrNoLease
		case <-joined:
		}
	}
}

// Drain refuses whatever would begin under the lease from now on.
func (f *Fleet) Drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.draining = true
}

// Wait returns when the goroutines that watch the other servers have ended, as they do
// with the fleet, or when ctx ends.
func (f *Fleet) Wait(ctx context.Context) error { return wait(ctx, &f.running) }

// StopRenewing lets the lease run out from now on.
func (f *Fleet) StopRenewing() {
	f.unkeep()
	f.keeping.Wait()
}

// Leave gives the lease up, once nothing goes on under it.
func (f *Fleet) Leave(ctx context.Context) error {
	if f.Alone() {
		return nil
	}
	f.mu.Lock()
	l := f.lease
	f.mu.Unlock()
	if l == nil {
		return nil
	}
	if err := wait(ctx, &l.entered); err != nil {
		return fmt.Errorf("stop what goes on beside the actors: %w", err)
	}
	if err := f.sign(0); err != nil {
		return err
	}
	crash.At(crash.LeaseLeaving)
	if err := f.config.Shared.Leave(ctx); err != nil {
		return fmt.Errorf("leave the servers of this store: %w", err)
	}
	return nil
}

// Elsewhere returns the owner of a session that another server has.
func Elsewhere(err error) (*ElsewhereError, bool) {
	return errors.AsType[*ElsewhereError](err)
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
