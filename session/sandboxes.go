package session

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
)

// evict asks a session to let its sandbox sleep.
func (s *Sessions) evict(id dormouse.SessionID) error {
	a, err := s.actor(s.ctx, id)
	if err == nil {
		err = a.Evict(s.ctx)
	}
	if _, moved := fleet.Elsewhere(err); moved || errors.Is(err, dormouse.ErrNotFound) {
		s.slots.Release(id)
		return nil
	}
	return err
}

// Slots says how many sandboxes are awake, and how many sessions wait until one
// may be.
func (s *Sessions) Slots() (awake, waiting int) { return s.slots.count() }

// Owned reports what a session knows of its sandbox, to a driver that has found one. A
// session counts as missing only if it has no row: one that cannot be read still has its
// files.
func (s *Sessions) Owned(ctx context.Context, id dormouse.SessionID) sandbox.Ownership {
	if _, err := s.Row(ctx, id); errors.Is(err, dormouse.ErrNotFound) {
		return sandbox.Ownership{}
	}
	state, err := s.Peek(ctx, id)
	switch {
	case err != nil:
		return sandbox.Ownership{Unsure: true}
	case state.Sandbox.Phase == law.SandboxCold:
		return sandbox.Ownership{Known: true}
	}
	// In a shared store the session may be another server's, which counts its slot; we
	// would not learn when it hibernates.
	if s.fleet.Alone() {
		s.slots.Adopt(id, law.IdleSince(state))
	}
	return sandbox.Ownership{Known: true, Generation: state.Sandbox.Generation}
}
