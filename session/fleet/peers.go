package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/visit"
)

// Peers is the way to the other servers of a shared store.
type Peers interface {
	// Do asks the actor of a session on another server. It returns what that actor
	// answers, ErrUnreached if it was surely not asked, and dormouse.ErrUnknownOutcome
	// if it may have been.
	Do(ctx context.Context, r Route, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error
	// Follow passes on what another server shows of a session that it has loaded, until
	// that ends.
	Follow(ctx context.Context, r Route, id dormouse.SessionID, after uint64, each func(feed.Relayed)) error
	// Ask has another server run an errand in a sandbox that it holds.
	Ask(ctx context.Context, r Route, e visit.Errand) (visit.Findings, error)
	// Open has another server open the stream of an errand, and carries it.
	Open(ctx context.Context, r Route, e visit.Errand) (visit.Conn, error)
}

// Route says which server asks which.
type Route struct{ From, To Server }

// ErrUnreached means that another server was not asked: it does not answer, or
// is no longer the one that was meant.
var ErrUnreached = errors.New("the other server was not reached")

// Forward puts a command to the server that owns a session.
func (f *Fleet) Forward(ctx context.Context, to Server, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error {
	return f.ask(ctx, to, id, func(ctx context.Context, r Route) error { return f.config.Peers.Do(ctx, r, id, by, v) })
}

// ask asks the server that owns a session, as long as it does.
func (f *Fleet) ask(ctx context.Context, to Server, id dormouse.SessionID, call func(context.Context, Route) error) error {
	from, ok := f.Self()
	if !ok {
		return fmt.Errorf("ask %s: %w", to.Name, dormouse.ErrLeaseLost)
	}
	f.counts.forwarded.Add(1)
	asking, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { f.whileOwned(asking, cancel, to, id) })
	crash.At(crash.PeerAsking)
	err := call(asking, Route{From: from, To: to})
	crash.At(crash.PeerAsked)
	cancel()
	watching.Wait()
	unknown := errors.Is(err, dormouse.ErrUnknownOutcome)
	if !unknown && !errors.Is(err, ErrStaleSender) &&
		(errors.Is(err, dormouse.ErrClosing) || errors.Is(err, dormouse.ErrLeaseLost) || errors.Is(err, dormouse.ErrNewerLog)) {
		err = fmt.Errorf("%w: %s: %w", ErrUnreached, to.Name, err) // it did nothing, and gives the session up
	}
	if unknown || errors.Is(err, ErrUnreached) {
		f.setOwner(id, nil)
	} else {
		f.setOwner(id, &to)
	}
	return err
}

// whileOwned cancels a call to a server that does not own the session any more. A server
// that is paused must not hold up clients that another one can serve by then.
func (f *Fleet) whileOwned(ctx context.Context, cancel context.CancelFunc, owner Server, id dormouse.SessionID) {
	for {
		if sleep.For(ctx, f.config.TTL/3) != nil {
			return
		}
		places, err := f.config.Shared.Where(ctx, id)
		if err != nil {
			continue // no other server can have it either
		}
		if len(places) == 0 || places[0].Owner == nil || places[0].Owner.Incarnation != owner.Incarnation {
			cancel()
			return
		}
	}
}

// maxOwners bounds how many sessions are remembered to be elsewhere.
const maxOwners = 10_000

// setOwner caches which server owned a session when that was asked, or that it owns it no
// longer. The cache may be stale: the server that is asked knows better.
func (f *Fleet) setOwner(id dormouse.SessionID, owner *Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if owner == nil {
		delete(f.owners, id)
		return
	}
	if len(f.owners) >= maxOwners {
		clear(f.owners)
	}
	f.owners[id] = *owner
}

// Owner returns the owner of a session as of the last answer.
func (f *Fleet) Owner(id dormouse.SessionID) (Server, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	owner, ok := f.owners[id]
	return owner, ok
}
