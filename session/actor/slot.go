package actor

import (
	"context"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// acquireSlot reports whether a session may start its sandbox now. If not it waits for a
// slot, and the actor reconciles again when it has one. A terminated session needs none:
// what it starts it stops at once.
func (a *Actor) acquireSlot(ctx context.Context) bool {
	if a.state.Terminated != nil || a.deps.Slots.TryAcquire(a.id) {
		return true
	}
	a.logger.InfoContext(ctx, "sandbox waits until another one hibernates")
	ctx, a.stopWaiting = context.WithCancel(ctx)
	a.sandbox.busy = true
	a.running.Go(func() {
		_ = a.deps.Slots.Acquire(ctx, a.id) // the actor tries again
		a.report(func(context.Context) error {
			a.stopWaiting()
			a.sandbox.busy, a.stopWaiting = false, nil
			return nil
		})
	})
	return false
}

// updateSlot reports the state of the sandbox to the slots.
func (a *Actor) updateSlot() {
	switch a.state.Sandbox.Phase {
	case law.SandboxCold:
		a.deps.Slots.Release(a.id)
	case law.SandboxWarming:
	case law.SandboxStopping:
		a.deps.Slots.SetStopping(a.id)
	case law.SandboxActive:
		a.deps.Slots.SetIdle(a.id, law.IdleSince(a.state))
	}
}

// evict hibernates the sandbox if it is not in use. Visitors are known only to the
// actor, so that the eviction of a session with visitors is tried again and again.
func (a *Actor) evict(ctx context.Context) error {
	switch {
	case a.state.Sandbox.Phase == law.SandboxCold:
		return nil // the next reconcile releases the slot
	case a.visits.Load() > 0 || len(a.waiters) > 0 || len(a.visitors) > 0:
		return fmt.Errorf("somebody is in it: %w", dormouse.ErrConflict)
	}
	return a.do(ctx, law.Evict{})
}
