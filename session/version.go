package session

import (
	"context"
	"errors"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// A log that has events of a newer program, or events that mean something else to it,
// must not be folded by this one: it would decide from a state that never was. Such a
// session is left to servers that can fold it. It is not damaged: nothing of it is
// written, and nothing that runs for it is ended.
//
// The row of a session says what its log needs, in the same transaction as the event
// that needs it, and the database refuses the claim of who does not know that much. So an
// older server does not even take the session, and does not disturb its owner.

// current is the row of a session, which it refuses if it says that the log needs a newer
// program. Who folds a log without having claimed it asks afterwards: what was appended
// meanwhile has raised the row before it could be read.
func current(ctx context.Context, s store.Reader, id dormouse.SessionID) (Row, error) {
	row, err := s.Session(ctx, id)
	if err == nil {
		err = newer(row)
	}
	return row, err
}

// newer is why this program leaves a session to others, if it does.
func newer(row Row) error {
	if row.Needs > dormouse.LogVersion {
		return &dormouse.NewerLogError{Session: row.Session, Needs: row.Needs}
	}
	return nil
}

// explained is a row that says why its session is left to others, if it is.
func explained(row Row) Row {
	if err := newer(row); err != nil {
		row.Newer = err.Error()
	}
	return row
}

// manyLeft bounds how many sessions are remembered to be left to others.
const manyLeft = 1000

// leaveToOthers remembers a session whose log cannot be folded here though its row says
// nothing of it, so that this server does not take it again and again.
func (s *Sessions) leaveToOthers(id dormouse.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) >= manyLeft {
		s.left = s.left[1:]
	}
	if !slices.Contains(s.left, id) {
		s.left = append(s.left, id)
	}
}

// leftToOthers lists the sessions that this server does not take.
func (s *Sessions) leftToOthers() []dormouse.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.left)
}

// Refused returns the row of a session that this program leaves to others, which says
// why. Of any other session, or for any other reason, it returns the reason.
func (s *Sessions) Refused(ctx context.Context, id dormouse.SessionID, why error) (Row, error) {
	if !errors.Is(why, dormouse.ErrNewerLog) {
		return Row{}, why
	}
	row, err := s.Row(ctx, id)
	if err == nil && row.Newer == "" {
		row.Newer = why.Error()
	}
	return row, err
}
