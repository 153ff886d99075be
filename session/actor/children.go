package actor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/session/law"
)

// fence is the lease under which this actor asks others for something.
func (a *Actor) fence() *dormouse.Fence { return &dormouse.Fence{Session: a.id, Epoch: a.epoch} }

// reconcileChildren makes the children that should be there and ends those that
// should not. Whatever was done and not recorded is done again: a child is made
// under an id that makes it once, and terminated twice is terminated once.
func (a *Actor) reconcileChildren(ctx context.Context, w law.Wanted) {
	for _, c := range w.Children {
		if a.children[c.ID] {
			continue
		}
		a.children[c.ID] = true
		a.running.Go(func() {
			v, err := a.reconcileChild(ctx, c)
			a.report(func(ctx context.Context) error {
				if err == nil {
					err = a.do(ctx, v)
				}
				if err == nil || ctx.Err() != nil {
					delete(a.children, c.ID)
					return err
				}
				a.logger.WarnContext(ctx, "child not reconciled; trying again later", "child", c.ID, "end", c.End, "error", err)
				a.later(ctx, func(context.Context) error {
					delete(a.children, c.ID)
					return nil
				})
				return err
			})
		})
	}
}

// reconcileChild makes or ends one child and returns what to record.
func (a *Actor) reconcileChild(ctx context.Context, c law.WantedChild) (law.Verb, error) {
	me := dormouse.FromSession(a.id)
	if c.End {
		crash.At(crash.ChildEnding)
		err := a.deps.Sessions.Do(ctx, c.ID, me, law.Terminate{Reason: "its parent ended it"})
		crash.At(crash.ChildEnded)
		switch {
		case errors.Is(err, dormouse.ErrNotFound):
			// Only we could make it, under an epoch that is still ours.
			return law.ChildDown{Child: c.ID, Reason: "never started"}, nil
		case err != nil:
			return nil, err
		}
		return law.ChildDown{Child: c.ID, Reason: "terminated"}, nil
	}
	e, err := a.log.Event(ctx, a.id, c.Seq)
	if err != nil {
		return nil, err
	}
	spec := law.Payload[dormouse.Spawned](e)
	crash.At(crash.ChildCreating)
	_, err = a.deps.Sessions.CreateChild(ctx, e.Actor, spec.Child, a.fence())
	if err != nil && !errors.Is(err, dormouse.ErrConflict) {
		return nil, err
	}
	switch row, err := a.deps.Sessions.Row(ctx, c.ID); {
	case err != nil || row.Parent != a.id:
		return law.ChildDown{Child: c.ID, Reason: "another session has its id"}, err
	case row.Status == dormouse.StatusTerminated:
		return law.ChildDown{Child: c.ID, Reason: "terminated"}, nil
	}
	crash.At(crash.ChildCreated)
	if len(spec.Prompt) > 0 {
		err := a.promptChild(ctx, c.ID, spec.Prompt)
		if err != nil && !errors.Is(err, dormouse.ErrTerminated) {
			return nil, err
		}
	}
	crash.At(crash.ChildPrompted)
	return law.ChildUp{Child: c.ID}, nil
}

// promptChild gives a new child its first prompt, once. If a client has used the usual id
// for a prompt of its own before, the prompt gets an id that no client can give.
func (a *Actor) promptChild(ctx context.Context, child dormouse.SessionID, content []dormouse.Block) (err error) {
	const name = "spawn"
	for _, id := range []dormouse.EventID{
		dormouse.PromptID(child, name),
		dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(child), name)),
	} {
		err = a.deps.Sessions.Do(ctx, child, dormouse.FromSession(a.id), law.Prompt{
			Under: a.fence(), ID: id, Body: dormouse.DigestOf(dormouse.Encode(content)), Content: content,
		})
		if !errors.Is(err, dormouse.ErrConflict) {
			return err
		}
	}
	return err
}

// maxNotifyDelay is the longest time until a parent that could not be notified is notified
// again.
const maxNotifyDelay = 5 * time.Second

// notifyParent has the parent record that its child has ended, for whatever reason. It
// repeats that until it has succeeded, because nothing else would free the child's place.
func (a *Actor) notifyParent(ctx context.Context, w law.Wanted) {
	if !w.TellParent || a.notifyingParent {
		return
	}
	a.notifyingParent = true
	parent, wait, deleted := a.state.Parent, max(a.notifyDelay, retryDelay), a.state.Deleted
	a.notifyDelay = min(2*wait, maxNotifyDelay)
	a.running.Go(func() {
		crash.At(crash.ParentTelling)
		err := a.deps.Sessions.Do(ctx, parent, dormouse.FromSession(a.id), law.EndChild{Child: a.id, Reason: "it has ended"})
		crash.At(crash.ParentTold)
		// A parent that is gone, or has ended, or no longer lists this child has nothing
		// to free.
		if errors.Is(err, dormouse.ErrNotFound) || errors.Is(err, dormouse.ErrTerminated) {
			err = nil
		}
		// A damaged parent reads the rows of its children once it can be read again. The
		// deletion of a child does not wait for that.
		if deleted && errors.Is(err, dormouse.ErrDamaged) {
			err = nil
		}
		if err != nil {
			a.logger.WarnContext(ctx, "parent not told that its child has ended", "parent", parent, "error", err)
			_ = sleep.For(ctx, wait) // the actor hears of it whether or not that was cut short
		}
		a.report(func(ctx context.Context) error {
			a.notifyingParent = false
			if err != nil {
				return err
			}
			return a.commitOwn(ctx, law.ParentTold{})
		})
	})
}

// child refuses a session that is not a child of this one, as if it were not
// there.
func (a *Actor) child(ctx context.Context, child dormouse.SessionID) (dormouse.SessionRow, error) {
	row, err := a.deps.Sessions.Row(ctx, child)
	if err == nil && row.Parent != a.id || errors.Is(err, dormouse.ErrNotFound) {
		err = dormouse.ErrNotFound // and not where it was looked for, which would tell the two apart
	}
	if err != nil {
		return dormouse.SessionRow{}, fmt.Errorf("child %s: %w", child, err)
	}
	return row, nil
}
