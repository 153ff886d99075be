package v1

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dormouse-run/dormouse/catalog"
)

// usualAgents and mostAgents are how many agents a page has.
const usualAgents, mostAgents = 20, 100

func (s *Server) agentRoutes() {
	s.handle("/v1/agents", methods{http.MethodGet: s.listAgents, http.MethodPost: s.createAgent})
	s.handle("/v1/agents/{id}", methods{http.MethodGet: s.getAgent, http.MethodPost: s.updateAgent})
	s.handle("/v1/agents/{id}/archive", methods{http.MethodPost: s.archiveAgent})
	s.handle("/v1/agents/{id}/versions", methods{http.MethodGet: s.listAgentVersions})
}

func (s *Server) createAgent(c call) error {
	var p catalog.AgentParams
	if err := c.decode(&p); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.CreateAgent(ctx, c.Who.Tenant, p))
}

func (s *Server) getAgent(c call) error {
	q := c.query()
	version := q.number("version", 0, 0, 1<<31-1)
	if q.err != nil {
		return q.err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.Agent(ctx, c.Who.Tenant, c.R.PathValue("id"), version))
}

func (s *Server) updateAgent(c call) error {
	var u catalog.AgentUpdate
	if err := c.decode(&u); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.UpdateAgent(ctx, c.Who.Tenant, c.R.PathValue("id"), u))
}

func (s *Server) archiveAgent(c call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.ArchiveAgent(ctx, c.Who.Tenant, c.R.PathValue("id")))
}

func (s *Server) listAgents(c call) error {
	q := c.query()
	want := catalog.Query{
		Tenant: c.Who.Tenant, Limit: q.limitOrZero(usualAgents, mostAgents), Archived: q.flag("include_archived"),
		CreatedFrom: q.time("created_at[gte]"), CreatedUntil: q.time("created_at[lte]"),
	}
	l := newList("agents", want.Tenant, strconv.FormatBool(want.Archived), formatTime(want.CreatedFrom), formatTime(want.CreatedUntil))
	return listOf(c, l, q, want, s.Catalog.Agents, func(a catalog.Agent) (string, time.Time) { return a.ID, a.Created })
}

func (s *Server) listAgentVersions(c call) error {
	q := c.query()
	id := c.R.PathValue("id")
	n := q.limitOrZero(usualAgents, mostAgents)
	l := newList("agent versions", c.Who.Tenant, id)
	before := 0
	if after := l.after(q); after != "" {
		var err error
		if before, err = strconv.Atoi(after); err != nil || before < 1 {
			q.wrongf("page: is no cursor of this list")
		}
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := c.Context()
	defer cancel()
	found, err := s.Catalog.AgentVersions(ctx, c.Who.Tenant, id, before, n+1)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, pageOf(l, n, found, func(a catalog.Agent) string { return strconv.Itoa(a.Version) }))
}
