package actor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

// reconcileDeadlines does what has become due by itself.
func (a *Actor) reconcileDeadlines(ctx context.Context, w law.Wanted) error {
	now := a.deps.Clock()
	due := func(at time.Time) bool { return !at.IsZero() && !at.After(now) }
	for _, wake := range w.Fire {
		if due(wake.At) {
			if err := a.fireWakeup(ctx, wake); err != nil {
				return err
			}
		}
	}
	if due(w.Expire) {
		return a.commitOwn(ctx, law.Tick{})
	}
	if due(w.Sleep) && len(w.Kill) == 0 {
		return a.hibernateIdle(ctx)
	}
	return nil
}

// fireWakeup queues the prompt of a wake-up, with its body from the log and the actor
// that scheduled it.
func (a *Actor) fireWakeup(ctx context.Context, w law.Wakeup) error {
	e, err := a.log.Event(ctx, a.id, w.Seq)
	switch {
	case errors.Is(err, history.ErrNoBody):
		// It fires without a body, which is recorded, rather than for ever.
		a.logger.ErrorContext(ctx, "wake-up unreadable", "wakeup", w.ID, "error", err)
	case err != nil:
		return err
	}
	crash.At(crash.WakeupFiring)
	err = a.commitOwnAs(ctx, e.Actor, law.Fire{ID: w.ID, Content: law.Payload[dormouse.Wakeup](e).Content})
	crash.At(crash.WakeupFired)
	return err
}

// parentCreates reports whether a parent has not recorded yet that this session is
// there, as far as it can be read. It would make one that is gone once more.
func (a *Actor) parentCreates(ctx context.Context) (bool, error) {
	if a.state.Parent == "" {
		return false, nil
	}
	parent, err := a.deps.Sessions.Peek(ctx, a.state.Parent)
	if errors.Is(err, dormouse.ErrDamaged) { // it makes nothing now, but perhaps when it can be read again
		a.removeDelay = min(2*max(a.removeDelay, retryDelay), maxRecheck)
		parent, _, err = a.deps.Sessions.Remains(ctx, a.state.Parent, err)
	}
	if errors.Is(err, dormouse.ErrNotFound) {
		return false, nil
	}
	i := parent.Child(a.id)
	return i >= 0 && !parent.Children[i].Started, err
}

// ErrRemoved ends an actor whose session no longer exists.
var ErrRemoved = errors.New("session was deleted")

// remove deletes everything that the session owned, its log last: as long as the log is
// there, a server will finish the work. Blobs may have other owners and are collected.
func (a *Actor) remove(ctx context.Context) error {
	if making, err := a.parentCreates(ctx); err != nil || making {
		a.logger.DebugContext(ctx, "session not deleted yet", "parent", a.state.Parent, "error", err)
		a.postponeFor(ctx, max(a.removeDelay, retryDelay))
		return nil
	}
	crash.At(crash.DeleteClearing)
	if err := a.lease.Holds(); err != nil {
		return err
	}
	if err := a.deps.Driver.Remove(ctx, a.sandboxFence(a.state.Sandbox.Generation)); err != nil {
		a.logger.WarnContext(ctx, "workspace not removed", "error", err)
		a.postpone(ctx)
		return nil
	}
	if a.deps.Snapshots != nil {
		if err := a.deps.Snapshots.ReleaseAll(a.id); err != nil {
			a.logger.WarnContext(ctx, "layers not released", "error", err)
		}
	}
	crash.At(crash.DeleteCleared)
	if err := a.deps.withReserve(func() error { return a.deps.Store.Delete(a.lease.Writes(), a.id, a.epoch) }); err != nil {
		return fmt.Errorf("delete %s: %w", a.id, err)
	}
	crash.At(crash.DeleteDone)
	a.logger.InfoContext(ctx, "session deleted")
	return ErrRemoved
}
