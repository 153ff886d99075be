package rest

import (
	"context"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/session"
)

// brancher branches sessions.
type brancher interface {
	Branch(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask session.BranchAsk) (session.Branched, error)
}

type branchRequest struct {
	// Snapshot is where the branch begins; the present if it is empty.
	Snapshot dormouse.SnapshotID `json:"snapshot"`
	Title    string              `json:"title"`
	// Processes says whether running processes are copied. If it is null they are only if
	// the session is hibernated; if it is true the session is hibernated for it.
	Processes *bool `json:"processes"`
}

// branch creates a session that goes on from a snapshot of another.
func (s *Server) branch(c call) error {
	var req branchRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	looking, cancel := c.Context()
	defer cancel()
	id, err := s.own(looking, c)
	if err != nil {
		return err
	}
	if req.Snapshot != "" {
		if req.Snapshot, err = snapshotID(string(req.Snapshot)); err != nil {
			return err
		}
	}
	if err := checkConnected(c); err != nil {
		return err
	}
	answering := s.withoutDeadlines(c)
	defer answering()
	branch, err := s.Sessions.Branch(c.R.Context(), id, c.Who.Actor, session.BranchAsk{
		Snapshot: req.Snapshot, Title: req.Title, Processes: req.Processes,
	})
	if err != nil {
		return err
	}
	answering()
	return c.Answer(http.StatusCreated, client.Branched(branch))
}
