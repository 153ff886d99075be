package rest

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

func childrenOf(state law.State) []ChildStage {
	all := make([]ChildStage, 0, len(state.Children))
	for _, c := range state.Children {
		all = append(all, ChildStage{Session: c.ID, Stage: stageOf(state, c.ID)})
	}
	return all
}

func stageOf(state law.State, child dormouse.SessionID) Stage {
	i := slices.IndexFunc(state.Children, func(c law.Child) bool { return c.ID == child })
	switch {
	case i < 0:
		return ChildEnded
	case state.Children[i].Ending || state.Terminated != nil:
		return ChildEnding
	case state.Children[i].Started:
		return ChildStarted
	}
	return ChildSpawned
}

// children lists the sessions that one has spawned, those that have ended too,
// newest first.
func (s *Server) children(c call) error {
	q, err := c.query("limit", "after")
	if err != nil {
		return err
	}
	n, err := limit(q, usualPage, longestPage)
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	state, err := s.peek(ctx, c)
	if err != nil {
		return err
	}
	page, err := s.page(ctx, session.Query{
		Tenant: c.Who.Tenant, Parent: state.Session, Archived: true, After: dormouse.SessionID(q.Get("after")), Limit: n,
	})
	if err != nil {
		return err
	}
	answer := client.Children{Children: make([]Child, 0, len(page.Sessions)), Next: page.Next}
	for _, row := range page.Sessions {
		answer.Children = append(answer.Children, Child{Row: row, Stage: stageOf(state, row.Session)})
	}
	return c.Answer(http.StatusOK, answer)
}

// endChild ends a child for good, and its own children with it.
func (s *Server) endChild(c call) error {
	child := dormouse.SessionID(c.R.PathValue("child"))
	if child.Validate() != nil {
		return fmt.Errorf("child %q: %w", shorten(string(child)), dormouse.ErrNotFound)
	}
	return s.command(c, law.EndChild{Child: child, Reason: requested})
}
