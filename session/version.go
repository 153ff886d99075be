package session

import (
	"context"
	"errors"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
)

// withNewer is a row with the reason why its session is left to other servers, if it is.
func withNewer(row Row) Row {
	if err := history.Newer(row); err != nil {
		row.Newer = err.Error()
	}
	return row
}

// maxLeft bounds how many sessions are remembered to be left to others.
const maxLeft = 1000

// leaveToNewer remembers a session whose log cannot be folded here though its row says
// nothing of it, so that this server does not take it again and again.
func (s *Sessions) leaveToNewer(id dormouse.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leftToNewer) >= maxLeft {
		s.leftToNewer = s.leftToNewer[1:]
	}
	if !slices.Contains(s.leftToNewer, id) {
		s.leftToNewer = append(s.leftToNewer, id)
	}
}

// newerSessions lists the sessions that this server does not take.
func (s *Sessions) newerSessions() []dormouse.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leftToNewer)
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
