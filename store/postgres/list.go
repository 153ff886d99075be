package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

const selectIndex = `SELECT id, tenant, owner, parent, title, phase, status, created, updated, last_seq, due, archived, metrics,
	agent, agent_version, environment, needs, damage, coalesce(tags, '[]'), coalesce(metadata, '{}'), coalesce(search, '')
	FROM sessions LEFT JOIN labels ON labels.session = sessions.key `

func readIndex(row pgx.CollectableRow) (i dormouse.SessionRow, err error) {
	var bad store.CorruptColumns
	var seq int64
	var due, archived *time.Time
	var metrics, tags, metadata []byte
	err = row.Scan(&i.Session, &i.Tenant, &i.Owner, &i.Parent, &i.Title, &i.Phase, &i.Status, &i.Created, &i.Updated, &seq,
		&due, &archived, &metrics, &i.AgentID, &i.AgentVersion, &i.EnvironmentID, &i.Needs, &i.Damage, &tags, &metadata, &i.Search)
	if err != nil {
		return i, err
	}
	i.Seq, i.Created, i.Updated = bad.Seq("last_seq", seq), bad.Time("created", i.Created), bad.Time("updated", i.Updated)
	i.Due, i.Archived = bad.Time("due", timeOrZero(due)), bad.Time("archived", timeOrZero(archived))
	i.Metrics = store.FromJSON[dormouse.Metrics](&bad, "metrics", metrics)
	i.Tags = store.FromJSON[[]string](&bad, "tags", tags)
	i.Metadata = store.FromJSON[map[string]string](&bad, "metadata", metadata)
	bad.Note(&i)
	return i, nil
}

// Session returns the index row of a session.
func (s *Store) Session(ctx context.Context, id dormouse.SessionID) (dormouse.SessionRow, error) {
	index, err := first(list(ctx, s, readIndex, selectIndex+`WHERE id = $1`, id))
	return index, wrap(err, "look up", id)
}

// Sessions lists the sessions of a tenant, newest first unless it is asked for the
// oldest.
func (s *Store) Sessions(ctx context.Context, q store.Query) ([]dormouse.SessionRow, error) {
	var w where
	beyond, order := `<`, ` DESC`
	if q.Oldest {
		beyond, order = `>`, ``
	}
	w.add(`WHERE tenant = ?`, q.Tenant)
	if q.Owner != "" {
		w.add(` AND owner = ?`, q.Owner)
	}
	if q.Parent != "" {
		w.add(` AND parent = ? AND parent <> ''`, q.Parent) // the second half is the index's own
	}
	if q.Phase != "" {
		w.add(` AND phase = ?`, q.Phase)
	}
	if q.AgentID != "" {
		w.add(` AND agent = ? AND agent <> ''`, q.AgentID) // as above
	}
	if q.AgentVersion != 0 {
		w.add(` AND agent_version = ?`, q.AgentVersion)
	}
	if len(q.Statuses) > 0 {
		w.add(` AND status = ANY (?)`, q.Statuses)
	}
	from, until := q.Window()
	if !from.IsZero() {
		w.add(` AND created >= ?`, from)
	}
	if !until.IsZero() {
		w.add(` AND created <= ?`, until)
	}
	if !q.Archived {
		w.add(` AND archived IS NULL`)
	}
	if q.Text != "" {
		w.add(` AND strpos(search, ?) > 0`, strings.ToLower(q.Text))
	}
	if len(q.Tags) > 0 {
		w.add(` AND tags @> ?`, q.Tags)
	}
	if len(q.Metadata) > 0 {
		w.add(` AND metadata @> ?`, q.Metadata)
	}
	if q.After != "" {
		created, err := s.created(ctx, `SELECT created FROM sessions WHERE id = $1 AND tenant = $2`, q.After, q.Tenant)
		if err != nil {
			return nil, wrap(err, "list sessions after", q.After)
		}
		w.add(` AND (created, id) `+beyond+` (?, ?)`, created, q.After)
	}
	w.add(` ORDER BY created`+order+`, id`+order+` LIMIT ?`, max(q.Limit, 0))
	found, err := list(ctx, s, readIndex, selectIndex+w.text, w.args...)
	return found, wrap(err, "list sessions of", q.Tenant)
}

// where is the condition of a query, as it is being built.
type where struct {
	text string
	args []any
}

// add adds a condition. Each ? in text stands for the next of values.
func (w *where) add(text string, values ...any) {
	for _, v := range values {
		w.args = append(w.args, v)
		text = strings.Replace(text, "?", fmt.Sprintf("$%d", len(w.args)), 1)
	}
	w.text += text
}

// All lists every session, oldest first.
func (s *Store) All(ctx context.Context, after dormouse.SessionID, limit int) ([]dormouse.SessionID, error) {
	where, args := ``, []any{max(limit, 0)}
	if after != "" {
		created, err := s.created(ctx, `SELECT created FROM sessions WHERE id = $1`, after)
		if err != nil {
			return nil, wrap(err, "list all after", after)
		}
		where, args = `WHERE (created, id) > ($2, $3)`, append(args, created, after)
	}
	ids, err := list(ctx, s, pgx.RowTo[dormouse.SessionID], `SELECT id FROM sessions `+where+` ORDER BY created, id LIMIT $1`, args...)
	return ids, wrap(err, "list all after", after)
}

// created finds the place of the last session of a page.
func (s *Store) created(ctx context.Context, query string, args ...any) (time.Time, error) {
	return first(list(ctx, s, pgx.RowTo[time.Time], query, args...))
}

// Due lists sessions due at or before t, most overdue first.
func (s *Store) Due(ctx context.Context, t time.Time, limit int) ([]dormouse.SessionID, error) {
	ids, err := list(ctx, s, pgx.RowTo[dormouse.SessionID], `SELECT id FROM sessions WHERE due <= $1 AND needs <= $2 ORDER BY due, key LIMIT $3`,
		t, dormouse.LogVersion, max(limit, 0))
	return ids, wrap(err, "list sessions due at", t)
}

// NextDue returns the earliest due time after t, or the zero time.
func (s *Store) NextDue(ctx context.Context, t time.Time) (time.Time, error) {
	due, err := first(list(ctx, s, pgx.RowTo[time.Time], `SELECT due FROM sessions WHERE due > $1 AND needs <= $2 ORDER BY due LIMIT 1`, t, dormouse.LogVersion))
	if errors.Is(err, dormouse.ErrNotFound) {
		return time.Time{}, nil
	}
	return due.UTC(), wrap(err, "find what is due after", t)
}
