package actor

import (
	"context"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// sit reports whether a session may start its sandbox now. If not it waits for a
// seat, and the actor looks again when it has one. A session that has ended needs
// none: it starts nothing but what it stops at once.
func (a *Actor) sit(ctx context.Context) bool {
	if a.state.Terminated != nil || a.deps.Slots.TryAcquire(a.id) {
		return true
	}
	a.slog.InfoContext(ctx, "sandbox waits until another one sleeps")
	ctx, a.unqueue = context.WithCancel(ctx)
	a.box.busy = true
	a.running.Go(func() {
		_ = a.deps.Slots.Acquire(ctx, a.id) // the actor sees what has come of it
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
		a.deps.Slots.Release(a.id)
	case law.SandboxWarming:
	case law.SandboxStopping:
		a.deps.Slots.SetStopping(a.id)
	case law.SandboxActive:
		a.deps.Slots.SetIdle(a.id, law.IdleSince(a.state))
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
