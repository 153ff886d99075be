package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// lister finds sessions.
type lister interface {
	List(ctx context.Context, q session.Query) ([]session.Row, error)
}

func (s *Server) listSessions(c call) error {
	q, err := c.selection()
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	page, err := s.page(ctx, q)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, page)
}

// page finds at most q.Limit sessions.
func (s *Server) page(ctx context.Context, q session.Query) (Page, error) {
	n := q.Limit
	q.Limit++
	rows, err := s.Sessions.List(ctx, q)
	if errors.Is(err, dormouse.ErrNotFound) {
		return Page{}, fmt.Errorf("parameter \"after\" names no session: %w", dormouse.ErrInvalid)
	}
	if err != nil {
		return Page{}, err
	}
	page := Page{Sessions: append([]session.Row{}, rows[:min(n, len(rows))]...)}
	if len(rows) > n {
		page.Next = rows[n-1].Session
	}
	return page, nil
}

// usualPage and longestPage are how many sessions a page has.
const usualPage, longestPage = 50, 200

// selection is which sessions a list is to hold.
func (c call) selection() (session.Query, error) {
	q, err := c.query("limit", "after", "phase", "text", "tag+", "metadata.*", "parent", "archived")
	if err != nil {
		return session.Query{}, err
	}
	all := session.Query{
		Tenant: c.Who.Tenant, Phase: dormouse.Phase(q.Get("phase")), Parent: dormouse.SessionID(q.Get("parent")),
		Text: q.Get("text"), Tags: q["tag"], After: dormouse.SessionID(q.Get("after")),
	}
	if all.Limit, err = limit(q, usualPage, longestPage); err != nil {
		return all, err
	}
	if all.Archived, err = flag(q, "archived"); err != nil {
		return all, err
	}
	if q.Has("phase") && !slices.Contains(dormouse.Phases(), all.Phase) {
		return all, fmt.Errorf("there is no phase %q; it must be one of %v: %w", shorten(string(all.Phase)), dormouse.Phases(), dormouse.ErrInvalid)
	}
	if q.Has("parent") && all.Parent.Validate() != nil {
		return all, fmt.Errorf("parameter \"parent\" must be the id of a session: %w", dormouse.ErrInvalid)
	}
	if len(all.Text) > dormouse.MaxTitle {
		return all, fmt.Errorf("parameter \"text\" is over %d bytes: %w", dormouse.MaxTitle, dormouse.ErrInvalid)
	}
	for name := range q {
		if key, ok := strings.CutPrefix(name, "metadata."); ok {
			if all.Metadata == nil {
				all.Metadata = make(map[string]string)
			}
			all.Metadata[key] = q.Get(name)
		}
	}
	return all, dormouse.Description{Tags: &all.Tags, Metadata: all.Metadata}.Validate()
}
