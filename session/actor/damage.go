package actor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// A session whose log cannot be read is damaged. What can be read of it is shown and
// exported, its processes are ended, and it can be terminated and deleted; nothing
// else is done for it, since its state is not known. If the log can be read again,
// the session goes on.

// How often it is tried to read a damaged log again: at first, and in the end. A person or a
// program that asks for the session causes a try at most every minRecheck.
const (
	minRecheck = time.Second
	maxRecheck = time.Minute
)

// ownDamage is the damage of the actor's own log that an error reports, or nil. Damage of
// another session does not count.
func (a *Actor) ownDamage(err error) error {
	if d, ok := errors.AsType[*store.DamageError](err); ok && d.Session == a.id {
		return d
	}
	return nil
}

// checkDamage ends the actor if an error is that its own log is damaged, which the cached fold
// did not show. The next actor finds the session marked and runs it as damaged. A log that
// can be read from its beginning to its end is not damaged.
func (a *Actor) checkDamage(ctx context.Context, err error) bool {
	if a.ownDamage(err) == nil || a.damage != nil || a.broken != nil {
		return a.broken != nil && errors.Is(a.broken, dormouse.ErrDamaged)
	}
	if _, _, err = a.log.Uncached().Fold(ctx, a.id); !errors.Is(err, dormouse.ErrDamaged) {
		return false
	}
	a.broken = err
	return true
}

// markDamaged notes in the session's row that its log is damaged.
func (a *Actor) markDamaged(ctx context.Context, damage error) {
	if err := a.deps.Store.Mark(a.lease.Writes(), a.id, a.epoch, history.Damage(damage)); err != nil {
		a.logger.WarnContext(ctx, "damage not noted", "damage", damage, "error", err)
	}
}

// runDamaged is Run for a session that is damaged. It returns nil when the
// session can be read again, or has ended and only that is left to carry out.
func (a *Actor) runDamaged(ctx context.Context, damage error) error {
	row, err := a.deps.Store.Session(ctx, a.id)
	if err != nil {
		return err
	}
	a.logger.ErrorContext(ctx, "session damaged", "error", damage)
	a.tenant, a.damage = row.Tenant, damage
	if said := history.Damage(damage); row.Damage != said {
		if err := a.deps.Store.Mark(a.lease.Writes(), a.id, a.epoch, said); err != nil {
			return err
		}
	}
	if a.state, err = a.log.Salvage(ctx, row); err != nil {
		return err
	}
	a.loaded()
	every, checked, ended := minRecheck, time.Now(), false
	for a.state.Terminated == nil {
		if !ended {
			if ended = a.endProcesses(ctx); ended {
				a.deps.Slots.Release(a.id)
			}
		}
		var m message
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m = <-a.inbox:
		case <-time.After(time.Until(checked.Add(every))):
			every = min(2*every, maxRecheck)
		}
		// Sessions and the server ask again and again, and can wait for the next try.
		someone := !m.by.IsSession() && m.by != dormouse.ActorServer
		if m.reply == nil || someone && time.Since(checked) > minRecheck {
			checked = time.Now()
			readable, err := a.reload(ctx)
			if err != nil || readable {
				return a.handOver(ctx, m, err)
			}
		}
		if err := a.answerDamaged(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// handOver passes a message that caused a damaged session to be read again on to the session.
func (a *Actor) handOver(ctx context.Context, m message, err error) error {
	switch {
	case m.reply == nil:
		return err
	case err != nil:
		m.reply <- err
		return err
	}
	return a.handle(ctx, m)
}

// reload loads a damaged session anew, and reports whether it could be.
func (a *Actor) reload(ctx context.Context) (bool, error) {
	if d, ok := errors.AsType[*store.DamageError](a.damage); ok && !a.log.Readable(ctx, a.id, d.Seq) {
		return false, nil // which is known without reading all of the log
	}
	state, cached, err := a.log.Uncached().Fold(ctx, a.id)
	if err != nil {
		return false, nil //nolint:nilerr // it is tried again
	}
	a.state, a.cached, a.damage = state, cached, nil
	if err := a.clearDamage(ctx); err != nil {
		return false, err
	}
	a.logger.InfoContext(ctx, "session can be read again")
	return true, nil
}

// clearDamage removes the mark of damage from the session's row, once the whole log was
// folded, perhaps for the first time since another server marked it. Children that ended
// meanwhile may not have been able to report it, so that their rows are read first.
func (a *Actor) clearDamage(ctx context.Context) error {
	for _, c := range a.state.Children {
		if !c.Started {
			continue // it is yet to be made
		}
		row, err := a.deps.Sessions.Row(ctx, c.ID)
		switch {
		case errors.Is(err, dormouse.ErrNotFound) || err == nil && row.Parent != a.id:
			err = a.do(ctx, law.ChildDown{Child: c.ID, Reason: "deleted"})
		case err == nil && row.Status == dormouse.StatusTerminated:
			err = a.do(ctx, law.ChildDown{Child: c.ID, Reason: "terminated"})
		}
		if err != nil {
			return fmt.Errorf("look after child %s: %w", c.ID, err)
		}
	}
	return a.deps.Store.Mark(a.lease.Writes(), a.id, a.epoch, "")
}

// answerDamaged does what can be done for a damaged session: end it.
func (a *Actor) answerDamaged(ctx context.Context, m message) error {
	if m.reply == nil {
		return nil
	}
	verb, ok := law.WhenDamaged(m.verb)
	if !ok {
		m.reply <- a.damage
		return nil
	}
	m.verb = verb
	if err := a.commit(ctx, m); err != nil {
		return err
	}
	return a.broken
}

// endProcesses ends what runs in the sandbox that the log last spoke of, and keeps its
// files. It reports whether nothing runs any more.
func (a *Actor) endProcesses(ctx context.Context) bool {
	if len(a.state.Sandbox.Handle) == 0 {
		return true
	}
	if a.lease.Holds() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := a.deps.Driver.Stop(ctx, a.state.Sandbox.Handle, a.sandboxFence(a.state.Sandbox.Generation)); err != nil {
		a.logger.WarnContext(ctx, "sandbox of a damaged session not stopped", "error", err)
		return false
	}
	return true
}
