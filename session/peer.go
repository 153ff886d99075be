package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/visit"
)

// Peers is the way to the other servers of a shared store.
type Peers interface {
	// Do asks the actor of a session on another server. It returns what DoHere
	// returns there, ErrUnreached if it was surely not asked, and
	// dormouse.ErrUnknownOutcome if it may have been.
	Do(ctx context.Context, r Route, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error
	// Follow hands on what FollowHere gives another server, until it ends.
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

// forward asks the server that owns a session.
func (s *Sessions) forward(ctx context.Context, to Server, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error {
	return s.across(ctx, to, id, func(ctx context.Context, r Route) error { return s.deps.Peers.Do(ctx, r, id, by, v) })
}

// across asks the server that owns a session, as long as it does.
func (s *Sessions) across(ctx context.Context, to Server, id dormouse.SessionID, ask func(context.Context, Route) error) error {
	from, ok := s.Self()
	if !ok {
		return fmt.Errorf("ask %s: %w", to.Name, dormouse.ErrLeaseLost)
	}
	s.counts.forwarded.Add(1)
	asking, enough := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { s.whileOwned(asking, enough, to, id) })
	crash.At(crash.PeerAsking)
	err := ask(asking, Route{From: from, To: to})
	crash.At(crash.PeerAsked)
	enough()
	watching.Wait()
	unknown := errors.Is(err, dormouse.ErrUnknownOutcome)
	if !unknown && !errors.Is(err, ErrStaleSender) &&
		(errors.Is(err, dormouse.ErrClosing) || errors.Is(err, dormouse.ErrLeaseLost) || errors.Is(err, dormouse.ErrNewerLog)) {
		err = fmt.Errorf("%w: %s: %w", ErrUnreached, to.Name, err) // it did nothing, and gives the session up
	}
	if unknown || errors.Is(err, ErrUnreached) {
		s.find(id, nil)
	} else {
		s.find(id, &to)
	}
	return err
}

// living is the servers that share the store, as they were a moment ago.
type living struct {
	mu    sync.Mutex
	at    time.Time       // guarded by mu
	known map[uint64]bool // guarded by mu; by incarnation
}

// Lives refuses an incarnation that is none of the servers that share the store, with
// ErrStaleSender. What it asks for, it may ask for late.
func (s *Sessions) Lives(ctx context.Context, incarnation uint64) error {
	if s.shared == nil {
		return dormouse.ErrLeaseLost
	}
	const often = 3 // looks in the time of a lease
	asked := time.Now()
	if s.living.knows(incarnation, asked.Add(-s.deps.Lease/often)) {
		return nil
	}
	servers, err := s.shared.Servers(ctx)
	if err != nil {
		return fmt.Errorf("list servers: %w", err)
	}
	s.living.learn(servers, asked)
	if !s.living.knows(incarnation, asked) {
		return fmt.Errorf("incarnation %d has no lease: %w", incarnation, ErrStaleSender)
	}
	return nil
}

// knows reports whether an incarnation was found among the servers since a time.
func (l *living) knows(incarnation uint64, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[incarnation] && !l.at.Before(since)
}

func (l *living) learn(servers []Server, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.known = at, make(map[uint64]bool, len(servers))
	for _, one := range servers {
		l.known[one.Incarnation] = true
	}
}

// manyOwners bounds how many sessions are remembered to be elsewhere.
const manyOwners = 10_000

// find remembers where a session was found, or that it is there no more. It may
// have moved by the time that is used: whoever is asked knows better.
func (s *Sessions) find(id dormouse.SessionID, owner *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner == nil {
		delete(s.owners, id)
		return
	}
	if len(s.owners) >= manyOwners {
		clear(s.owners)
	}
	s.owners[id] = *owner
}

// found returns where a session was last found, unless it is loaded here.
func (s *Sessions) found(id dormouse.SessionID) (Server, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner, ok := s.owners[id]
	return owner, ok && s.actors[id] == nil
}

// whileOwned ends the waiting for a server that does not own the session any
// more. One that is paused must not hold up who can be served elsewhere by then.
func (s *Sessions) whileOwned(ctx context.Context, enough context.CancelFunc, owner Server, id dormouse.SessionID) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.deps.Lease / 3):
		}
		places, err := s.shared.Where(ctx, id)
		if err != nil {
			continue // nobody else can have it either
		}
		if len(places) == 0 || places[0].Owner == nil || places[0].Owner.Incarnation != owner.Incarnation {
			enough()
			return
		}
	}
}

// elsewhere returns who owns a session that another server has.
func elsewhere(err error) (*ElsewhereError, bool) {
	return errors.AsType[*ElsewhereError](err)
}

// FollowHere reads a session that is loaded on this server, for another one. It
// ends with ErrUnreached once the session is no longer loaded here.
func (s *Sessions) FollowHere(id dormouse.SessionID, after uint64) (*feed.Follower, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.actors[id]
	switch {
	case s.closing:
		return nil, dormouse.ErrClosing
	case a == nil:
		return nil, fmt.Errorf("session %s is not loaded: %w", id, ErrUnreached)
	}
	return s.feeds.FollowUntil(id, after, a.done, ErrUnreached), nil
}
