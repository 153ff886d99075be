package v1

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dormouse-run/dormouse/catalog"
)

// usualEnvironments and mostEnvironments are how many environments a page has.
const usualEnvironments, mostEnvironments = 20, 1000

func (s *Server) environmentRoutes() {
	s.handle("/v1/environments", methods{http.MethodGet: s.listEnvironments, http.MethodPost: s.createEnvironment})
	s.handle("/v1/environments/{id}", methods{
		http.MethodGet: s.getEnvironment, http.MethodPost: s.updateEnvironment, http.MethodDelete: s.deleteEnvironment,
	})
	s.handle("/v1/environments/{id}/archive", methods{http.MethodPost: s.archiveEnvironment})
}

func (s *Server) createEnvironment(c call) error {
	var p catalog.EnvironmentParams
	if err := c.decode(&p); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.CreateEnvironment(ctx, c.Who.Tenant, p))
}

func (s *Server) getEnvironment(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.Environment(ctx, c.Who.Tenant, c.R.PathValue("id")))
}

func (s *Server) updateEnvironment(c call) error {
	var u catalog.EnvironmentUpdate
	if err := c.decode(&u); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.UpdateEnvironment(ctx, c.Who.Tenant, c.R.PathValue("id"), u))
}

func (s *Server) archiveEnvironment(c call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.ArchiveEnvironment(ctx, c.Who.Tenant, c.R.PathValue("id")))
}

// deleted says that something is gone.
type deleted struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

func (s *Server) deleteEnvironment(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	id := c.R.PathValue("id")
	if err := s.Catalog.DeleteEnvironment(ctx, c.Who.Tenant, id); err != nil {
		return err
	}
	return c.Answer(http.StatusOK, deleted{id, "environment_deleted"})
}

func (s *Server) listEnvironments(c call) error {
	q := c.query()
	want := catalog.Query{Tenant: c.Who.Tenant, Limit: q.limit(usualEnvironments, mostEnvironments), Archived: q.flag("include_archived")}
	l := newList("environments", want.Tenant, strconv.FormatBool(want.Archived))
	return listOf(c, l, q, want, s.Catalog.Environments, func(e catalog.Environment) (string, time.Time) { return e.ID, e.Created })
}
