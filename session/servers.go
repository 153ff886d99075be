package session

import (
	"context"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/session/fleet"
)

// What doors and the program ask about the servers that share the store. The answers are
// the fleet's.

// Join makes this server one of those that share the store, and keeps it one
// until Close. Of a store for one server alone it already is the one.
func (s *Sessions) Join(ctx context.Context) error { return s.fleet.Join(ctx) }

// Self is this server among those that share the store, as long as it has a
// lease.
func (s *Sessions) Self() (fleet.Server, bool) { return s.fleet.Self() }

// FleetNow is the time by the clock that all servers of a shared store go by. With
// dormouse.ErrLeaseLost it cannot be relied on.
func (s *Sessions) FleetNow() (time.Time, error) { return s.fleet.Now() }

// Lives refuses an incarnation that is none of the servers that share the store, with
// fleet.ErrStaleSender.
func (s *Sessions) Lives(ctx context.Context, incarnation uint64) error {
	return s.fleet.CheckMember(ctx, incarnation)
}

// Counts returns what has happened among the servers so far.
func (s *Sessions) Counts() fleet.Counts { return s.fleet.Counts() }

// Failed receives once why this server must end, because it gets no lease any more.
func (s *Sessions) Failed() <-chan error { return s.fleet.Failed() }

// Under runs work that belongs to no actor under the present lease. It is cancelled when
// the lease ends.
func (s *Sessions) Under(ctx context.Context, do func(context.Context) error) error {
	return s.fleet.Under(ctx, do)
}

// FollowHere reads a session that is loaded on this server, for another one. It
// ends with fleet.ErrUnreached once the session is no longer loaded here.
func (s *Sessions) FollowHere(id dormouse.SessionID, after uint64) (*feed.Follower, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.actors[id]
	switch {
	case s.closing:
		return nil, dormouse.ErrClosing
	case a == nil:
		return nil, fmt.Errorf("session %s is not loaded: %w", id, fleet.ErrUnreached)
	}
	return s.feeds.FollowUntil(id, after, a.done, fleet.ErrUnreached), nil
}
