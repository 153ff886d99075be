package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// pollEvery is the longest that a due session waits to be noticed.
const pollEvery = 2 * time.Second

// Run wakes sessions when something of theirs is due, until ctx ends: at start
// those that a server before us left at work, later those whose alarm rings, and
// those of servers that are no more.
func (s *Sessions) Run(ctx context.Context) error {
	wake := s.wakeDue
	if !s.fleet.Alone() {
		wake = s.takeDue
	}
	for {
		pause, err := wake(ctx)
		if err != nil && ctx.Err() == nil {
			s.config.Logger.WarnContext(ctx, "due sessions not read", "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return nil
		case <-s.kick:
			pause = 50 * time.Millisecond // a failing session must not spin
			if err := sleep.For(ctx, pause); err != nil {
				return err
			}
		case <-time.After(pause):
		}
	}
}

// wakeDue loads what is due in a store that no other server uses.
func (s *Sessions) wakeDue(ctx context.Context) (time.Duration, error) {
	now := s.config.Clock()
	due, err := s.config.Store.Due(ctx, now, 10_000+s.Loaded())
	if err != nil {
		return pollEvery, err
	}
	left := s.newerSessions()
	for _, id := range due {
		if !slices.Contains(left, id) {
			s.loadNow(id)
		}
	}
	return s.untilDue(ctx, now, pollEvery)
}

// untilDue is how long nothing becomes due, and at most that long.
func (s *Sessions) untilDue(ctx context.Context, now time.Time, most time.Duration) (time.Duration, error) {
	next, err := s.config.Store.NextDue(ctx, now)
	if err != nil || next.IsZero() {
		return most, err
	}
	return min(max(next.Sub(now), time.Millisecond), most), nil
}

// loadNow loads a session that wants something.
func (s *Sessions) loadNow(id dormouse.SessionID) {
	if _, err := s.actor(s.ctx, id); err != nil && !errors.Is(err, dormouse.ErrClosing) {
		s.config.Logger.WarnContext(s.ctx, "session not woken", "session", id, "error", err)
	}
}

// takeAtOnce bounds what a server takes before it has loaded what it took before
// that, so that servers share what is due.
const takeAtOnce = 32

// takeDue loads what is due and no live server has.
func (s *Sessions) takeDue(ctx context.Context) (time.Duration, error) {
	every := min(s.config.Lease/6, pollEvery)
	if _, ok := s.Self(); !ok {
		return every, nil
	}
	s.loadPending()
	for before := []*entry(nil); ; {
		now := s.config.Clock()
		ids, err := s.fleet.Take(ctx, now, takeAtOnce, s.newerSessions()...)
		if err != nil {
			return every, err
		}
		loading := s.loadAll(ids)
		awaitLoaded(ctx, before)
		before = loading
		if len(ids) < takeAtOnce {
			if err := s.findStrays(ctx, now); err != nil {
				return every, err
			}
			return s.untilDue(ctx, now, every)
		}
	}
}

// loadAll loads sessions at once.
func (s *Sessions) loadAll(ids []dormouse.SessionID) (loading []*entry) {
	for _, id := range ids {
		if a, err := s.loadOwned(id); err == nil { // if not, the lease is lost or given up, and they with it
			loading = append(loading, a)
		}
	}
	return loading
}

// awaitLoaded waits for actors, but not long for one that is slow.
func awaitLoaded(ctx context.Context, loading []*entry) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, a := range loading {
		select {
		case <-a.ready:
		case <-ctx.Done():
			return
		}
	}
}

// loadPending loads the sessions that this server may own without an answer that said so.
// Once loaded they are worked on or released like any other.
func (s *Sessions) loadPending() {
	for _, id := range s.fleet.TakePending() {
		if _, err := s.loadOwned(id); err != nil {
			s.fleet.AddPending(id)
		}
	}
}

// loadOwned loads a session that is ours, or may be. An actor that is being unloaded does
// nothing for it any more, so that its claim stays pending.
func (s *Sessions) loadOwned(id dormouse.SessionID) (*entry, error) {
	a, err := s.load(id)
	if err != nil {
		return nil, err
	}
	select {
	case <-a.Quit():
		s.fleet.AddPending(id)
	default:
	}
	return a, nil
}

// findStrays loads due sessions that this server owns without knowing: a Take whose
// answer was lost has claimed them.
func (s *Sessions) findStrays(ctx context.Context, now time.Time) error {
	if !s.fleet.InDoubt() {
		return nil
	}
	due, err := s.config.Store.Due(ctx, now, 10_000+s.Loaded())
	if err != nil {
		return err
	}
	if err := s.fleet.AddStrays(ctx, s.unloaded(due)); err != nil {
		return err
	}
	s.loadPending()
	return nil
}

// unloaded returns those of the sessions that have no actor here.
func (s *Sessions) unloaded(ids []dormouse.SessionID) []dormouse.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []dormouse.SessionID
	for _, id := range ids {
		if s.actors[id] == nil {
			out = append(out, id)
		}
	}
	return out
}
