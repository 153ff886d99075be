package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// What is wrong with an event.
var (
	errNoJSON = errors.New("its payload is not what was written")
	errNoRow  = errors.New("there is no such row")
)

// damaged makes an error of a payload that will never be read a damage of the log.
func damaged(id dormouse.SessionID, seq uint64, err error) error {
	return &store.DamageError{Session: id, Seq: seq, Err: err}
}

// Damage is the text about a damaged log, without which call found it.
func Damage(err error) string {
	if d, ok := errors.AsType[*store.DamageError](err); ok {
		return d.Error()
	}
	return err.Error()
}

// Readable reports whether the event at a seq can be folded, as far as can be told.
func (r Reader) Readable(ctx context.Context, id dormouse.SessionID, seq uint64) bool {
	if seq == 0 {
		return true // it is unknown which one it is
	}
	events, err := r.Store.Read(ctx, id, seq-1, 1)
	if err != nil || len(events) == 0 {
		return false
	}
	e := events[0]
	if !law.Folds(e.Type) || foldsWithoutBody(e.Type) {
		return true
	}
	e, err = r.Inflate(ctx, e)
	return err == nil && checkPayload(id, e) == nil
}

// Salvage folds what can be read of a damaged log and leaves out the rest. The row of the
// session supplies what the first event would. The state is good for showing and for ending
// a session, and for nothing else.
func (r Reader) Salvage(ctx context.Context, row dormouse.SessionRow) (law.State, error) {
	var s law.State
	for {
		events, err := r.Store.Read(ctx, row.Session, s.Seq, Page)
		damage, isDamaged := errors.AsType[*store.DamageError](err)
		if err != nil && !isDamaged {
			return law.State{}, fmt.Errorf("salvage %s: %w", row.Session, err)
		}
		for _, e := range events {
			if s, err = r.salvageEvent(ctx, row, s, e); err != nil {
				return law.State{}, err
			}
		}
		switch {
		case isDamaged && damage.Seq == s.Seq+1 && damage.Seq <= row.Seq:
			s = skip(s, row, damage.Seq)
			continue
		case isDamaged || len(events) < Page:
			if s.Session == "" { // nothing of it could be read
				s = skip(s, row, 1)
			}
			s.Seq = row.Seq // the next event follows that
			// What cannot be read may need more than what can.
			s.Needs = max(s.Needs, row.Needs)
			return s, nil
		}
	}
}

// salvageEvent folds an event, if it can be read.
func (r Reader) salvageEvent(ctx context.Context, row dormouse.SessionRow, s law.State, e dormouse.Event) (law.State, error) {
	if err := law.Readable(row.Session, []dormouse.Event{e}); err != nil {
		return s, err
	}
	if e.Blob != "" && law.Folds(e.Type) {
		whole, err := r.Inflate(ctx, e)
		switch {
		case IsLost(err) && !foldsWithoutBody(e.Type):
			return skip(s, row, e.Seq), nil
		case err != nil && !IsLost(err):
			return s, fmt.Errorf("salvage %s: %w", row.Session, err)
		}
		e = whole
	}
	if damage := checkPayload(row.Session, e); damage != nil {
		return skip(s, row, e.Seq), nil //nolint:nilerr // it is left out, which is noted
	}
	return law.Apply(s, e), nil
}

// skip goes past an event that cannot be read. If that is the first, the session's row
// has to serve instead.
func skip(s law.State, row dormouse.SessionRow, seq uint64) law.State {
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
