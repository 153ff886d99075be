package session

import (
	"context"
	"errors"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
)

// explained is a row that says why its session is left to others, if it is.
func explained(row Row) Row {
	if err := history.Newer(row); err != nil {
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
