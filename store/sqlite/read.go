package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// key finds a session's key inside another query.
const key = `(SELECT key FROM sessions WHERE id = ?)`

// limitClause bounds what a query returns, by its next parameter. A bare parameter would
// have SQLite plan the query anew each time.
const limitClause = ` LIMIT ? + 0`

// Read returns events with a seq above after.
func (s *Store) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	after = min(after, 1<<62)
	found, err := list(ctx, s, readStored, selectEvents+` WHERE session = `+key+` AND seq > ? ORDER BY seq`+limitClause, id, int64(after), max(limit, 0))
	if code(err) == lib.SQLITE_CORRUPT {
		err = &store.DamageError{Session: id, Err: err}
	}
	if err != nil {
		return nil, wrap(err, "read", id)
	}
	events, err := store.Verified(id, after, found)
	return events, wrap(err, "read", id)
}

const selectEvents = `SELECT seq, id, type, thread, actor, time, payload, blob, sum FROM events`

func readStored(rows *sql.Rows) (e store.Stored, err error) {
	var at int64
	var payload []byte
	err = rows.Scan(&e.Seq, &e.ID, &e.Type, &e.Thread, &e.Actor, &at, &payload, &e.Blob, &e.Sum)
	e.Time, e.Payload = fromMicros(at), payload
	return e, err
}

// Epoch returns the newest epoch of a session.
func (s *Store) Epoch(ctx context.Context, id dormouse.SessionID) (store.Epoch, error) {
	epoch, err := first(list(ctx, s, scan[store.Epoch], `SELECT epoch FROM sessions WHERE id = ?`, id))
	return epoch, wrap(err, "look up the epoch of", id)
}

// anyBlob stands in place of a digest for a session that may name any blob, because a
// salvage could not tell. It goes when the session is derived again or deleted.
const anyBlob = "*"

// Named returns those of the digests that an event or a snapshot names.
func (s *Store) Named(ctx context.Context, digests []dormouse.Digest) ([]dormouse.Digest, error) {
	asked, err := toJSON(digests)
	if err != nil {
		return nil, wrap(err, "look for names of", len(digests))
	}
	named, err := list(ctx, s, scan[dormouse.Digest], `SELECT value FROM json_each(?) WHERE
		EXISTS (SELECT 1 FROM events JOIN sessions ON sessions.key = events.session WHERE blob = value AND blob <> '')
		OR EXISTS (SELECT 1 FROM names JOIN sessions ON sessions.key = names.session WHERE digest = value)
		OR EXISTS (SELECT 1 FROM names JOIN sessions ON sessions.key = names.session WHERE digest = '`+anyBlob+`')`, asked)
	return named, wrap(err, "look for names of", len(digests))
}

// Prompts lists a session's prompts, oldest first.
func (s *Store) Prompts(ctx context.Context, id dormouse.SessionID, statuses ...dormouse.PromptStatus) ([]dormouse.PromptRecord, error) {
	where, args := ``, []any{id}
	if len(statuses) > 0 {
		where = ` AND status IN (?` + strings.Repeat(`, ?`, len(statuses)-1) + `)`
		for _, status := range statuses {
			args = append(args, status)
		}
	}
	found, err := list(ctx, s, readPrompt, selectPrompt+where+` ORDER BY seq, id`, args...)
	return found, wrap(err, "list prompts of", id)
}

// Prompt returns one prompt of a session.
func (s *Store) Prompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (dormouse.PromptRecord, error) {
	found, err := first(list(ctx, s, readPrompt, selectPrompt+` AND id = ?`, id, prompt))
	return found, wrap(err, "look up a prompt of", id)
}

// ClientIDs returns the seq of each of the ids that a client has given in a session.
func (s *Store) ClientIDs(ctx context.Context, id dormouse.SessionID, ids ...string) (map[string]uint64, error) {
	asked, err := toJSON(ids)
	if err != nil {
		return nil, wrap(err, "look up ids of", id)
	}
	given, err := list(ctx, s, func(rows *sql.Rows) (c dormouse.ClientID, err error) {
		err = rows.Scan(&c.ID, &c.Seq)
		return c, err
	}, `SELECT id, seq FROM client_ids WHERE session = `+key+` AND id IN (SELECT value FROM json_each(?))`, id, asked)
	return store.Seqs(given), wrap(err, "look up ids of", id)
}

const selectPrompt = `SELECT id, thread, status, body, turn, seq, queued FROM prompts WHERE session = ` + key

func readPrompt(rows *sql.Rows) (p dormouse.PromptRecord, err error) {
	var queued int64
	err = rows.Scan(&p.ID, &p.Thread, &p.Status, &p.Body, &p.Turn, &p.Seq, &queued)
	p.Queued = fromMicros(queued)
	return p, err
}

// Ops lists a session's ops, newest first.
func (s *Store) Ops(ctx context.Context, id dormouse.SessionID, limit int) ([]dormouse.OpRecord, error) {
	ops, err := list(ctx, s, func(rows *sql.Rows) (o dormouse.OpRecord, err error) {
		var id dormouse.OpID
		var started int64
		var finished sql.NullInt64
		var op []byte
		if err := rows.Scan(&id, &op, &o.Status, &o.Outcome, &started, &finished); err != nil {
			return o, err
		}
		o.Started, o.Finished = fromMicros(started), instantOrZero(finished)
		if json.Unmarshal(op, &o.Op) != nil {
			o.Op = dormouse.Op{ID: id} // one that is not what was written hides no other
		}
		return o, nil
	}, `SELECT id, op, status, outcome, started, finished FROM ops
		WHERE n IN (SELECT n FROM ops WHERE session = `+key+` ORDER BY n DESC`+limitClause+`) ORDER BY n DESC`, id, max(limit, 0))
	return ops, wrap(err, "list ops of", id)
}

// State returns the cached fold of a session's log.
func (s *Store) State(ctx context.Context, id dormouse.SessionID) (dormouse.StateCache, error) {
	state, err := first(list(ctx, s, func(rows *sql.Rows) (t dormouse.StateCache, err error) {
		err = rows.Scan(&t.Seq, &t.Version, &t.Data)
		return t, err
	}, `SELECT seq, version, data FROM states WHERE session = `+key, id))
	if errors.Is(err, dormouse.ErrNotFound) {
		return dormouse.StateCache{}, nil
	}
	return state, wrap(err, "load state of", id)
}

// Chunks returns an open op's chunks in order.
func (s *Store) Chunks(ctx context.Context, id dormouse.SessionID, op dormouse.OpID) ([]store.Chunk, error) {
	chunks, err := list(ctx, s, func(rows *sql.Rows) (c store.Chunk, err error) {
		err = rows.Scan(&c.Op, &c.N, &c.Text)
		return c, err
	}, `SELECT op, n, text FROM chunks WHERE session = `+key+` AND op = ? ORDER BY n`, id, op)
	return chunks, wrap(err, "load chunks of", id)
}

// Due lists sessions due at or before t, most overdue first.
func (s *Store) Due(ctx context.Context, t time.Time, limit int) ([]dormouse.SessionID, error) {
	ids, err := list(ctx, s, scan[dormouse.SessionID], `SELECT id FROM sessions WHERE due <= ? AND needs <= ? ORDER BY due, key`+limitClause,
		micros(t), dormouse.LogVersion, max(limit, 0))
	return ids, wrap(err, "list sessions due at", t)
}

// NextDue returns the earliest due time after t, or the zero time.
func (s *Store) NextDue(ctx context.Context, t time.Time) (time.Time, error) {
	due, err := first(list(ctx, s, scan[int64], `SELECT due FROM sessions WHERE due > ? AND typeof(due) = 'integer' AND needs <= ? ORDER BY due LIMIT 1`, micros(t), dormouse.LogVersion))
	if errors.Is(err, dormouse.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, wrap(err, "find what is due after", t)
	}
	return fromMicros(due), nil
}

// list runs a query and reads every row of its answer.
func list[T any](ctx context.Context, s *Store, read func(*sql.Rows) (T, error), query string, args ...any) (found []T, err error) {
	defer func() {
		err = asCorrupt(err)
		select {
		case <-s.writer.closing:
			if err != nil {
				err = fmt.Errorf("%w: %w", dormouse.ErrClosing, err)
			}
		default:
		}
	}()
	rows, err := s.query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		t, err := read(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, t)
	}
	return found, rows.Err()
}

// maxPrepared bounds the statements that stay prepared.
const maxPrepared = 512

// query uses a prepared statement that is cached: SQLite takes longer to parse a short
// query than to run it. The number of texts is bounded, except for lists, which have
// thousands of variants.
func (s *Store) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	s.mu.Lock()
	stmt := s.prepared[text]
	if stmt == nil && len(s.prepared) >= maxPrepared {
		s.mu.Unlock()
		return s.pool.QueryContext(ctx, text, args...)
	}
	if stmt == nil {
		var err error
		if stmt, err = s.pool.PrepareContext(ctx, text); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		s.prepared[text] = stmt
	}
	s.mu.Unlock()
	return stmt.QueryContext(ctx, args...)
}

// first takes the one row there should be.
func first[T any](found []T, err error) (T, error) {
	if err == nil && len(found) == 0 {
		err = dormouse.ErrNotFound
	}
	if err != nil {
		var none T
		return none, err
	}
	return found[0], nil
}

func wrap(err error, verb string, what any) error {
	if err != nil {
		return fmt.Errorf("%s %v: %w", verb, what, err)
	}
	return nil
}

// scan reads a row of one column.
func scan[T any](rows *sql.Rows) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

func instantOrZero(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return fromMicros(us.Int64)
}
