package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/session/actor"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/visit"
)

// Reach visits the sandbox of a session, on whichever server it is held. With
// wake one is started if there is none; without, that is a conflict. While a
// visit lasts its session stays loaded; that it lasts keeps no sandbox awake.
func (s *Sessions) Reach(ctx context.Context, id dormouse.SessionID, wake bool) (*visit.Visit, error) {
	e := visit.Errand{Session: id, Wake: wake}
	v, err := s.reach(ctx, e)
	for begun := time.Now(); s.reachRetryable(err) && time.Since(begun) < retryFor; v, err = s.reach(ctx, e) {
		if sleep.For(ctx, retryEvery) != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
	return v, visit.Reachable(unreached(err))
}

// reachRetryable reports whether another server may take a session over in a
// moment.
func (s *Sessions) reachRetryable(err error) bool {
	if err == nil || s.fleet.Alone() || errors.Is(err, fleet.ErrNoLease) {
		return false
	}
	return errors.Is(err, fleet.ErrUnreached) || errors.Is(err, dormouse.ErrLeaseLost) || errors.Is(err, dormouse.ErrUnknownOutcome)
}

func (s *Sessions) reach(ctx context.Context, e visit.Errand) (*visit.Visit, error) {
	if owner, ok := s.ownerElsewhere(e.Session); ok {
		if v, err := s.fleet.Visit(ctx, s.visits, owner, e); !errors.Is(err, fleet.ErrUnreached) {
			return v, err
		}
	}
	v, err := s.ReachHere(ctx, e)
	if other, ok := fleet.Elsewhere(err); ok {
		return s.fleet.Visit(ctx, s.visits, other.Owner, e)
	}
	return v, err
}

// ReachHere visits a sandbox that this server holds, or can. If another server
// owns the session, it says which.
func (s *Sessions) ReachHere(ctx context.Context, e visit.Errand) (v *visit.Visit, err error) {
	err = s.onActor(ctx, e.Session, func(a *entry) error {
		v, err = a.Visit(ctx, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.visits.Admit(v)
}

// unreached tells a visitor that the sandbox is out of reach if its server is.
func unreached(err error) error {
	if errors.Is(err, fleet.ErrUnreached) || errors.Is(err, actor.ErrDropped) {
		return visit.OutOfReach(err)
	}
	return err
}
