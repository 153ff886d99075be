package v1

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// lister finds sessions.
type lister interface {
	List(ctx context.Context, q session.Query) ([]session.Row, error)
}

// listSessions lists sessions, the newest first unless asked otherwise.
func (s *Server) listSessions(c call) error {
	q := c.query()
	limit := q.limitOrZero(usualPage, mostPage)
	find := session.Query{
		Tenant: c.Who.Tenant, Oldest: q.word("order", "desc", "asc") == "asc", Archived: q.flag("include_archived"),
		AgentID: q.text("agent_id"), AgentVersion: q.number("agent_version", 0, 0, 1<<31-1),
		CreatedFrom: q.time("created_at[gte]"), CreatedAfter: q.time("created_at[gt]"),
		CreatedUntil: q.time("created_at[lte]"), CreatedBefore: q.time("created_at[lt]"),
		Limit: limit + 1,
	}
	for _, status := range q.list("statuses", statuses...) {
		find.Statuses = append(find.Statuses, dormouse.Status(status))
	}
	l := newList("sessions", c.Who.Tenant, strconv.FormatBool(find.Oldest))
	made, after, _ := strings.Cut(l.after(q), " ")
	find.After = dormouse.SessionID(after)
	if q.err == nil && (q.text("memory_store_id") != "" || q.text("deployment_id") != "") {
		return c.Answer(http.StatusOK, Page[Session]{Data: []Session{}}) // there are none, so that no session has one
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := c.Context()
	defer cancel()
	rows, err := s.Sessions.List(ctx, find)
	if errors.Is(err, dormouse.ErrNotFound) { // what the page before ended with is gone
		if find, err = continueFrom(find, made); err != nil {
			return err
		}
		rows, err = s.Sessions.List(ctx, find)
	}
	if err != nil {
		return err
	}
	page := pageOf(l, limit, rows, func(r session.Row) string { return formatTime(r.Created) + " " + string(r.Session) })
	out := Page[Session]{Data: []Session{}, Next: page.Next}
	for _, row := range page.Data {
		shown, err := s.sessionOf(ctx, row.Session)
		switch {
		case err == nil:
		case errors.Is(err, dormouse.ErrNewerLog), errors.Is(err, dormouse.ErrDamaged):
			shown = s.describeRow(ctx, row) // a session that cannot be folded hides no other
		case errors.Is(err, dormouse.ErrNotFound):
			continue // it went meanwhile
		default:
			return err
		}
		out.Data = append(out.Data, shown)
	}
	return c.Answer(http.StatusOK, out)
}

// continueFrom continues a list after a session that is gone by now, from when that was
// created.
func continueFrom(q session.Query, made string) (session.Query, error) {
	t, err := time.Parse(time.RFC3339Nano, made)
	if err != nil {
		return q, invalidf("page: is no cursor of this list")
	}
	if q.After = ""; q.Oldest {
		q.CreatedFrom = latest(q.CreatedFrom, t)
	} else {
		q.CreatedUntil = earliest(q.CreatedUntil, t)
	}
	return q, nil
}

var statuses = []string{
	string(dormouse.StatusRescheduling), string(dormouse.StatusRunning), string(dormouse.StatusIdle), string(dormouse.StatusTerminated),
}
