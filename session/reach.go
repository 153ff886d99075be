package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/visit"
)

// maxVisits bounds the visits of one session.
const maxVisits = 64

// Reach visits the sandbox of a session, on whichever server it is held. With
// wake one is started if there is none; without, that is a conflict. While a
// visit lasts its session stays loaded; that it lasts keeps no sandbox awake.
func (s *Sessions) Reach(ctx context.Context, id dormouse.SessionID, wake bool) (*visit.Visit, error) {
	e := visit.Errand{Session: id, Wake: wake}
	v, err := s.reach(ctx, e)
	for begun := time.Now(); s.worthReaching(err) && time.Since(begun) < patience; v, err = s.reach(ctx, e) {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(askAgain):
		}
	}
	return v, visit.Reachable(unreached(err))
}

// worthReaching reports whether another server may take a session over in a
// moment.
func (s *Sessions) worthReaching(err error) bool {
	if err == nil || s.shared == nil || errors.Is(err, errNoLease) {
		return false
	}
	return errors.Is(err, ErrUnreached) || errors.Is(err, dormouse.ErrLeaseLost) || errors.Is(err, dormouse.ErrUnknownOutcome)
}

func (s *Sessions) reach(ctx context.Context, e visit.Errand) (*visit.Visit, error) {
	if owner, ok := s.found(e.Session); ok {
		if v, err := s.reachThere(ctx, owner, e); !errors.Is(err, ErrUnreached) {
			return v, err
		}
	}
	v, err := s.ReachHere(ctx, e)
	if other, ok := elsewhere(err); ok {
		return s.reachThere(ctx, other.Owner, e)
	}
	return v, err
}

// ReachHere visits a sandbox that this server holds, or can. If another server
// owns the session, it says which.
func (s *Sessions) ReachHere(ctx context.Context, e visit.Errand) (v *visit.Visit, err error) {
	err = s.onActor(ctx, e.Session, func(a *Actor) error {
		v, err = a.visit(ctx, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.visits.Admit(v)
}

// reachThere visits a sandbox that another server holds. Whatever is done on the
// visit is an errand for that server, about the sandbox that was found first.
func (s *Sessions) reachThere(ctx context.Context, owner Server, e visit.Errand) (*visit.Visit, error) {
	f, err := there{sessions: s, owner: owner, to: e}.Run(ctx, visit.Errand{})
	if err != nil {
		return nil, err
	}
	e.Wake, e.Generation = false, f.Generation
	return s.visits.NewRemote(there{sessions: s, owner: owner, to: e}, f.Generation)
}

// there is a sandbox that another server holds.
type there struct {
	sessions *Sessions
	owner    Server
	to       visit.Errand // the sandbox that is meant
}

func (t there) Run(ctx context.Context, e visit.Errand) (f visit.Findings, err error) {
	e.Session, e.Wake, e.Generation = t.to.Session, t.to.Wake, t.to.Generation
	err = t.sessions.across(ctx, t.owner, e.Session, func(ctx context.Context, r Route) error {
		f, err = t.sessions.deps.Peers.Ask(ctx, r, e)
		return err
	})
	return f, unreached(err)
}

func (t there) Open(ctx context.Context, s visit.Stream) (c visit.Conn, err error) {
	e := t.to
	e.Stream = &s
	err = t.sessions.across(ctx, t.owner, e.Session, func(ctx context.Context, r Route) error {
		c, err = t.sessions.deps.Peers.Open(ctx, r, e)
		return err
	})
	return c, unreached(err)
}

// unreached tells a visitor that the sandbox is out of reach if its server is.
func unreached(err error) error {
	if errors.Is(err, ErrUnreached) || errors.Is(err, errDropped) {
		return visit.OutOfReach(err)
	}
	return err
}
