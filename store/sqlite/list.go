package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Session returns the index row of a session.
func (s *Store) Session(ctx context.Context, id dormouse.SessionID) (dormouse.SessionRow, error) {
	index, err := first(list(ctx, s, readIndex, selectIndex+`WHERE id = ?`, id))
	return index, wrap(err, "look up", id)
}

// Sessions lists the sessions of a tenant, newest first unless it is asked for the
// oldest.
func (s *Store) Sessions(ctx context.Context, q store.Query) ([]dormouse.SessionRow, error) {
	var where strings.Builder
	args := []any{q.Tenant}
	beyond, order := `<`, ` DESC`
	if q.Oldest {
		beyond, order = `>`, ``
	}
	add := func(text string, values ...any) {
		where.WriteString(text)
		args = append(args, values...)
	}
	if q.Owner != "" {
		add(` AND owner = ?`, q.Owner)
	}
	if q.Parent != "" {
		add(` AND parent = ? AND parent <> ''`, q.Parent) // the second half is the index's own
	}
	if q.Phase != "" {
		add(` AND phase = ?`, q.Phase)
	}
	if q.AgentID != "" {
		add(` AND agent = ? AND agent <> ''`, q.AgentID) // as above
	}
	if q.AgentVersion != 0 {
		add(` AND agent_version = ?`, q.AgentVersion)
	}
	if len(q.Statuses) > 0 {
		wanted, err := toJSON(q.Statuses)
		if err != nil {
			return nil, wrap(err, "list sessions of", q.Tenant)
		}
		add(` AND status IN (SELECT value FROM json_each(?))`, wanted)
	}
	from, until := q.Window()
	if !from.IsZero() {
		add(` AND created >= ?`, micros(from))
	}
	if !until.IsZero() {
		add(` AND created <= ?`, micros(until))
	}
	if !q.Archived {
		add(` AND archived IS NULL`)
	}
	if q.Text != "" {
		add(` AND instr(search, ?)`, strings.ToLower(q.Text))
	}
	if len(q.Tags) > 0 {
		wanted, err := toJSON(q.Tags)
		if err != nil {
			return nil, wrap(err, "list sessions of", q.Tenant)
		}
		add(` AND NOT EXISTS (SELECT 1 FROM json_each(?) AS want WHERE want.value NOT IN (SELECT value FROM json_each(`+wellFormed("labels.tags")+`)))`, wanted)
	}
	if len(q.Metadata) > 0 {
		wanted, err := toJSON(q.Metadata)
		if err != nil {
			return nil, wrap(err, "list sessions of", q.Tenant)
		}
		add(` AND NOT EXISTS (SELECT 1 FROM json_each(?) AS want
			WHERE NOT EXISTS (SELECT 1 FROM json_each(`+wellFormed("labels.metadata")+`) AS has WHERE has.key = want.key AND has.value = want.value))`, wanted)
	}
	if q.After != "" {
		created, err := s.created(ctx, `SELECT created FROM sessions WHERE id = ? AND tenant = ?`, q.After, q.Tenant)
		if err != nil {
			return nil, wrap(err, "list sessions after", q.After)
		}
		add(` AND (created, id) `+beyond+` (?, ?)`, created, q.After)
	}
	add(` ORDER BY created`+order+`, id`+order+limitClause, max(q.Limit, 0))
	found, err := list(ctx, s, readIndex, selectIndex+`WHERE tenant = ?`+where.String(), args...)
	return found, wrap(err, "list sessions of", q.Tenant)
}

// All lists every session, oldest first.
func (s *Store) All(ctx context.Context, after dormouse.SessionID, limit int) ([]dormouse.SessionID, error) {
	where, args := ``, []any{}
	if after != "" {
		created, err := s.created(ctx, `SELECT created FROM sessions WHERE id = ?`, after)
		if err != nil {
			return nil, wrap(err, "list all after", after)
		}
		where, args = `WHERE (created, id) > (?, ?)`, []any{created, after}
	}
	ids, err := list(ctx, s, scan[dormouse.SessionID], `SELECT id FROM sessions `+where+` ORDER BY created, id`+limitClause, append(args, max(limit, 0))...)
	return ids, wrap(err, "list all after", after)
}

// created finds the place of the last session of a page, as it is stored: also if that
// is no time any more, the next page begins there.
func (s *Store) created(ctx context.Context, query string, args ...any) (any, error) {
	return first(list(ctx, s, scan[any], query, args...))
}

const selectIndex = `SELECT id, tenant, owner, parent, title, phase, status, created, updated, last_seq, due, archived, metrics,
	agent, agent_version, environment, needs, damage, coalesce(tags, '[]'), coalesce(metadata, '{}'), coalesce(search, '')
	FROM sessions LEFT JOIN labels ON labels.session = sessions.key `

func readIndex(rows *sql.Rows) (i dormouse.SessionRow, err error) {
	var bad store.CorruptColumns
	var metrics, tags, metadata string
	err = rows.Scan(textColumn(&bad, "id", &i.Session), textColumn(&bad, "tenant", &i.Tenant), textColumn(&bad, "owner", &i.Owner), textColumn(&bad, "parent", &i.Parent),
		textColumn(&bad, "title", &i.Title), textColumn(&bad, "phase", &i.Phase), textColumn(&bad, "status", &i.Status),
		timeColumn(&bad, "created", &i.Created), timeColumn(&bad, "updated", &i.Updated),
		integerColumn(&bad, "last_seq", func(n int64) { i.Seq = bad.Seq("last_seq", n) }),
		nullableTimeColumn(&bad, "due", &i.Due), nullableTimeColumn(&bad, "archived", &i.Archived), textColumn(&bad, "metrics", &metrics),
		textColumn(&bad, "agent", &i.AgentID), integerColumn(&bad, "agent_version", func(n int64) { i.AgentVersion = int(n) }),
		textColumn(&bad, "environment", &i.EnvironmentID), integerColumn(&bad, "needs", func(n int64) { i.Needs = int(n) }), textColumn(&bad, "damage", &i.Damage),
		textColumn(&bad, "tags", &tags), textColumn(&bad, "metadata", &metadata), textColumn(&bad, "search", &i.Search))
	if err != nil {
		return i, err
	}
	i.Metrics = store.FromJSON[dormouse.Metrics](&bad, "metrics", []byte(metrics))
	i.Tags = store.FromJSON[[]string](&bad, "tags", []byte(tags))
	i.Metadata = store.FromJSON[map[string]string](&bad, "metadata", []byte(metadata))
	bad.Note(&i)
	return i, nil
}
