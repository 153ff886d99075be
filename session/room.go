package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
)

// sit reports whether a session may start its sandbox now. If not it waits for a
// seat, and the actor looks again when it has one. A session that has ended needs
// none: it starts nothing but what it stops at once.
func (a *Actor) sit(ctx context.Context) bool {
	if a.state.Terminated != nil || a.deps.seats.try(a.id) {
		return true
	}
	a.slog.InfoContext(ctx, "sandbox waits until another one sleeps")
	ctx, a.unqueue = context.WithCancel(ctx)
	a.box.busy = true
	a.running.Go(func() {
		_ = a.deps.seats.take(ctx, a.id) // the actor sees what has come of it
		a.report(func(context.Context) error {
			a.unqueue()
			a.box.busy, a.unqueue = false, nil
			return nil
		})
	})
	return false
}

// noteSeat says whether the session uses its sandbox.
func (a *Actor) noteSeat() {
	switch a.state.Sandbox.Phase {
	case law.SandboxCold:
		a.deps.seats.leave(a.id)
	case law.SandboxWarming:
	case law.SandboxStopping:
		a.deps.seats.goes(a.id)
	case law.SandboxActive:
		a.deps.seats.note(a.id, law.IdleSince(a.state))
	}
}

// makeRoom puts the sandbox to sleep if nobody uses it. Who visits it is seen only
// here: a session with visitors is asked again and again.
func (a *Actor) makeRoom(ctx context.Context) error {
	switch {
	case a.state.Sandbox.Phase == law.SandboxCold:
		return nil // the seat is given up with the next look
	case a.visits.Load() > 0 || len(a.waiters) > 0 || len(a.visitors) > 0:
		return fmt.Errorf("somebody is in it: %w", dormouse.ErrConflict)
	}
	return a.do(ctx, law.MakeRoom{})
}

// makeRoom asks a session to let its sandbox sleep.
func (s *Sessions) makeRoom(id dormouse.SessionID) error {
	a, err := s.actor(s.ctx, id)
	if err == nil {
		err = a.Evict(s.ctx)
	}
	if _, moved := fleet.Elsewhere(err); moved || errors.Is(err, dormouse.ErrNotFound) {
		s.seats.leave(id)
		return nil
	}
	return err
}

// Seats says how many sandboxes are awake, and how many sessions wait until one
// may be.
func (s *Sessions) Seats() (awake, waiting int) { return s.seats.count() }

// Owned says what a session knows of its sandbox, for somebody who found one. Only a
// session without a row is not there: one that cannot be read has its files.
func (s *Sessions) Owned(ctx context.Context, id dormouse.SessionID) sandbox.Owned {
	if _, err := s.Row(ctx, id); errors.Is(err, dormouse.ErrNotFound) {
		return sandbox.Owned{}
	}
	state, err := s.Peek(ctx, id)
	switch {
	case err != nil:
		return sandbox.Owned{Unsure: true}
	case state.Sandbox.Phase == law.SandboxCold:
		return sandbox.Owned{Known: true}
	}
	// Of a shared store it may be another server's. Who has its actor seats it, and
	// nobody would tell us when it sleeps.
	if s.fleet.Alone() {
		s.seats.found(id, law.IdleSince(state))
	}
	return sandbox.Owned{Known: true, Generation: state.Sandbox.Generation}
}
