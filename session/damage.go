package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// A session whose log cannot be read is damaged. What can be read of it is shown and
// exported, its processes are ended, and it can be terminated and deleted; nothing
// else is done for it, since nobody knows what should be. Should the bytes come back,
// it goes on.

// How often a damaged log is looked at: at first, in the end, and at most when a person or
// a program asks for the session.
const (
	firstLook  = time.Second
	rarestLook = time.Minute
)

// unreadable makes an error of a payload that will never be read a damage of the log.
func unreadable(id dormouse.SessionID, seq uint64, err error) error {
	return &store.DamageError{Session: id, Seq: seq, Err: err}
}

// damageOf is what is said of a damaged log, without who came upon it.
func damageOf(err error) string {
	if d, ok := errors.AsType[*store.DamageError](err); ok {
		return d.Error()
	}
	return err.Error()
}

// What is wrong with an event.
var (
	errNoJSON = errors.New("its payload is not what was written")
	errNoRow  = errors.New("there is no such row")
)

// ownDamage is the damage of the actor's own log that an error tells of, nil if it tells
// of none. That of another session is none of this one.
func (a *Actor) ownDamage(err error) error {
	if d, ok := errors.AsType[*store.DamageError](err); ok && d.Session == a.id {
		return d
	}
	return nil
}

// suffer ends the actor if an error is that its own log is damaged, which the cached fold
// did not show. The next actor finds the session declared, and endures. A log that can be
// read from its beginning to its end is not damaged.
func (a *Actor) suffer(ctx context.Context, err error) bool {
	if a.ownDamage(err) == nil || a.damage != nil || a.broken != nil {
		return a.broken != nil && errors.Is(a.broken, dormouse.ErrDamaged)
	}
	if _, _, err = refold(ctx, a.deps, a.id); !errors.Is(err, dormouse.ErrDamaged) {
		return false
	}
	a.broken = err
	return true
}

// declare notes in the session's row that its log is damaged.
func (a *Actor) declare(ctx context.Context, damage error) {
	if err := a.deps.Store.Mark(a.lease.writes, a.id, a.epoch, damageOf(damage)); err != nil {
		a.slog.WarnContext(ctx, "damage not noted", "damage", damage, "error", err)
	}
}

// refold folds a log from its first event on. The cached fold says nothing of whether the
// events before it can be read.
func refold(ctx context.Context, deps *Config, id dormouse.SessionID) (law.State, uint64, error) {
	return fold(ctx, withoutCache(deps), id)
}

// withoutCache is what a session needs, but for cached folds.
func withoutCache(deps *Config) *Config {
	whole := *deps
	whole.Store = uncached{deps.Store}
	return &whole
}

// uncached is a store without cached folds.
type uncached struct{ store.Store }

func (uncached) State(context.Context, dormouse.SessionID) (dormouse.StateCache, error) {
	return dormouse.StateCache{}, nil
}

// checkPayload refuses a payload that would fold as an empty value.
func checkPayload(id dormouse.SessionID, e dormouse.Event) error {
	if len(e.Payload) > 0 && !json.Valid(e.Payload) {
		return unreadable(id, e.Seq, errNoJSON)
	}
	return nil
}

// salvage folds what can be read of a damaged log, around what cannot, under the row
// of the session. It is good for showing and for ending a session, and for nothing else.
func salvage(ctx context.Context, deps *Config, row Row) (law.State, error) {
	var s law.State
	for {
		events, err := deps.Store.Read(ctx, row.Session, s.Seq, page)
		damage, damaged := errors.AsType[*store.DamageError](err)
		if err != nil && !damaged {
			return law.State{}, fmt.Errorf("salvage %s: %w", row.Session, err)
		}
		for _, e := range events {
			if s, err = salvageEvent(ctx, deps, row, s, e); err != nil {
				return law.State{}, err
			}
		}
		switch {
		case damaged && damage.Seq == s.Seq+1 && damage.Seq <= row.Seq:
			s = skip(s, row, damage.Seq)
			continue
		case damaged || len(events) < page:
			if s.Session == "" { // nothing of it could be read
				s = skip(s, row, 1)
			}
			s.Seq = row.Seq // what is written next follows on that
			// What cannot be read may need more than what can.
			s.Needs = max(s.Needs, row.Needs)
			return s, nil
		}
	}
}

// salvageEvent folds an event, if it can be read.
func salvageEvent(ctx context.Context, deps *Config, row Row, s law.State, e dormouse.Event) (law.State, error) {
	if err := law.Readable(row.Session, []dormouse.Event{e}); err != nil {
		return s, err
	}
	if e.Blob != "" && law.Folds(e.Type) {
		whole, err := inflate(ctx, deps.Blobs, e)
		switch {
		case isLost(err) && !bears(e.Type):
			return skip(s, row, e.Seq), nil
		case err != nil && !isLost(err):
			return s, fmt.Errorf("salvage %s: %w", row.Session, err)
		}
		e = whole
	}
	if unreadable := checkPayload(row.Session, e); unreadable != nil {
		return skip(s, row, e.Seq), nil //nolint:nilerr // it is left out, which is noted
	}
	return law.Apply(s, e), nil
}

// skip goes past an event that cannot be read. If that is the first, the row says what
// the session is.
func skip(s law.State, row Row, seq uint64) law.State {
	s = s.Clone()
	s.Seq, s.Updated = seq, row.Updated
	if seq == 1 {
		law.ApplyCreated(&s, dormouse.Created{
			Session: row.Session, Tenant: row.Tenant, Owner: row.Owner, Parent: row.Parent, Title: row.Title, Tags: row.Tags, Metadata: row.Metadata,
			Agent: dormouse.AgentConfig{ID: row.AgentID, Version: row.AgentVersion}, EnvironmentID: row.EnvironmentID,
		}, row.Created)
	}
	return s
}

// Remains returns what can be read of a session that is damaged, whose row says what is
// wrong with it.
func (s *Sessions) Remains(ctx context.Context, id dormouse.SessionID, damage error) (law.State, Row, error) {
	row, err := s.Row(ctx, id)
	if err != nil {
		return law.State{}, Row{}, err
	}
	if row.Damage == "" {
		s.wake(id) // so that it is noted, and nothing of it runs
	}
	state, err := salvage(ctx, s.deps, row)
	if err != nil {
		return law.State{}, Row{}, err
	}
	row = law.Index(state)
	row.Damage = damageOf(damage)
	return state, row, nil
}

// endure is the life of an actor whose session is damaged. It returns nil when the
// session can be read again, or has ended and there is only its end to see to.
func (a *Actor) endure(ctx context.Context, damage error) error {
	row, err := a.deps.Store.Session(ctx, a.id)
	if err != nil {
		return err
	}
	a.slog.ErrorContext(ctx, "session damaged", "error", damage)
	a.tenant, a.damage = row.Tenant, damage
	if said := damageOf(damage); row.Damage != said {
		if err := a.deps.Store.Mark(a.lease.writes, a.id, a.epoch, said); err != nil {
			return err
		}
	}
	if a.state, err = salvage(ctx, a.deps, row); err != nil {
		return err
	}
	a.loaded()
	every, looked, ended := firstLook, time.Now(), false
	for a.state.Terminated == nil {
		if !ended {
			if ended = a.endProcesses(ctx); ended {
				a.deps.seats.leave(a.id)
			}
		}
		var m message
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m = <-a.inbox:
		case <-time.After(time.Until(looked.Add(every))):
			every = min(2*every, rarestLook)
		}
		// Sessions and the server ask again and again, and can wait until it is looked at.
		someone := !m.by.IsSession() && m.by != dormouse.ActorServer
		if m.reply == nil || someone && time.Since(looked) > firstLook {
			looked = time.Now()
			mended, err := a.mend(ctx)
			if err != nil || mended {
				return a.pass(ctx, m, err)
			}
		}
		if err := a.answerDamaged(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// pass hands a message that came while the session was mended to the session.
func (a *Actor) pass(ctx context.Context, m message, err error) error {
	switch {
	case m.reply == nil:
		return err
	case err != nil:
		m.reply <- err
		return err
	}
	return a.handle(ctx, m)
}

// mend loads a damaged session anew, and reports whether it could be.
func (a *Actor) mend(ctx context.Context) (bool, error) {
	if d, ok := errors.AsType[*store.DamageError](a.damage); ok && !a.readsAt(ctx, d.Seq) {
		return false, nil // without a look at all of the log
	}
	state, cached, err := refold(ctx, a.deps, a.id)
	if err != nil {
		return false, nil //nolint:nilerr // it is looked at again
	}
	a.state, a.cached, a.damage = state, cached, nil
	if err := a.unmark(ctx); err != nil {
		return false, err
	}
	a.slog.InfoContext(ctx, "session can be read again")
	return true, nil
}

// readsAt reports whether the event at a seq can be folded, as far as can be told.
func (a *Actor) readsAt(ctx context.Context, seq uint64) bool {
	if seq == 0 {
		return true // nobody knows which one it is
	}
	events, err := a.deps.Store.Read(ctx, a.id, seq-1, 1)
	if err != nil || len(events) == 0 {
		return false
	}
	e := events[0]
	if !law.Folds(e.Type) || bears(e.Type) {
		return true
	}
	e, err = inflate(ctx, a.deps.Blobs, e)
	return err == nil && checkPayload(a.id, e) == nil
}

// unmark takes the damage back that a session's row tells of, once the state is that of
// the whole log: it can be read, perhaps for the first time since another server marked it.
// Children that ended meanwhile may not have told it, so that it looks for itself before.
func (a *Actor) unmark(ctx context.Context) error {
	for _, c := range a.state.Children {
		if !c.Started {
			continue // it is made yet
		}
		row, err := a.deps.family.Row(ctx, c.ID)
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
	return a.deps.Store.Mark(a.lease.writes, a.id, a.epoch, "")
}

// answerDamaged does what can be done for a damaged session: end it.
func (a *Actor) answerDamaged(ctx context.Context, m message) error {
	switch v := m.verb.(type) { //nolint:gochecksumtype // nothing else can be decided
	case nil:
		if m.reply != nil {
			m.reply <- a.damage
		}
		return nil
	case law.Terminate, law.Archive:
	case law.Delete:
		v.Resting = false // nothing of it runs any more
		m.verb = v
	default:
		m.reply <- a.damage
		return nil
	}
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
	if a.lease.holds() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := a.deps.Driver.Stop(ctx, a.state.Sandbox.Handle, a.sandboxFence(a.state.Sandbox.Generation)); err != nil {
		a.slog.WarnContext(ctx, "sandbox of a damaged session not stopped", "error", err)
		return false
	}
	return true
}
