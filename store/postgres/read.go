package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// key finds a session's key inside another query.
const key = `(SELECT key FROM sessions WHERE id = $1)`

// Read returns events with a seq above after.
func (s *Store) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	after = min(after, 1<<62)
	found, err := list(ctx, s, func(row pgx.CollectableRow) (e store.Stored, err error) {
		var payload []byte
		err = row.Scan(&e.Seq, &e.ID, &e.Type, &e.Thread, &e.Actor, &e.Time, &payload, &e.Blob, &e.Sum)
		e.Time, e.Payload = e.Time.UTC(), payload
		return e, err
	}, `SELECT seq, id, type, thread, actor, time, payload, blob, sum FROM events
		WHERE session = `+key+` AND seq > $2 ORDER BY seq LIMIT $3`, id, signed(after), max(limit, 0))
	if err != nil {
		return nil, wrap(err, "read", id)
	}
	events, err := store.Verified(id, after, found)
	return events, wrap(err, "read", id)
}

// Prompts lists a session's prompts, oldest first.
func (s *Store) Prompts(ctx context.Context, id dormouse.SessionID, statuses ...dormouse.PromptStatus) ([]dormouse.PromptRecord, error) {
	where, args := ``, []any{id}
	if len(statuses) > 0 {
		where, args = ` AND status = ANY ($2)`, append(args, statuses)
	}
	found, err := list(ctx, s, readPrompt, selectPrompt+where+` ORDER BY seq, id COLLATE "C"`, args...)
	return found, wrap(err, "list prompts of", id)
}

// Prompt returns one prompt of a session.
func (s *Store) Prompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (dormouse.PromptRecord, error) {
	found, err := first(list(ctx, s, readPrompt, selectPrompt+` AND id = $2`, id, prompt))
	return found, wrap(err, "look up a prompt of", id)
}

// ClientIDs returns the seq of each of the ids that a client has given in a session.
func (s *Store) ClientIDs(ctx context.Context, id dormouse.SessionID, ids ...string) (map[string]uint64, error) {
	given, err := list(ctx, s, func(row pgx.CollectableRow) (c dormouse.ClientID, err error) {
		err = row.Scan(&c.ID, &c.Seq)
		return c, err
	}, `SELECT id, seq FROM client_ids WHERE session = `+key+` AND id = ANY ($2)`, id, ids)
	return store.Seqs(given), wrap(err, "look up ids of", id)
}

const selectPrompt = `SELECT id, thread, status, body, turn, seq, queued FROM prompts WHERE session = ` + key

func readPrompt(row pgx.CollectableRow) (p dormouse.PromptRecord, err error) {
	err = row.Scan(&p.ID, &p.Thread, &p.Status, &p.Body, &p.Turn, &p.Seq, &p.Queued)
	p.Queued = p.Queued.UTC()
	return p, err
}

// Ops lists a session's ops, newest first.
func (s *Store) Ops(ctx context.Context, id dormouse.SessionID, limit int) ([]dormouse.OpRecord, error) {
	ops, err := list(ctx, s, func(row pgx.CollectableRow) (o dormouse.OpRecord, err error) {
		var id dormouse.OpID
		var op []byte
		var finished *time.Time
		if err := row.Scan(&id, &op, &o.Status, &o.Outcome, &o.Started, &finished); err != nil {
			return o, err
		}
		o.Started, o.Finished = o.Started.UTC(), timeOrZero(finished)
		if json.Unmarshal(op, &o.Op) != nil {
			o.Op = dormouse.Op{ID: id} // one that is not what was written hides no other
		}
		return o, nil
	}, `SELECT id, op, status, outcome, started, finished FROM ops WHERE session = `+key+` ORDER BY n DESC LIMIT $2`, id, max(limit, 0))
	return ops, wrap(err, "list ops of", id)
}

// State returns the cached fold of a session's log.
func (s *Store) State(ctx context.Context, id dormouse.SessionID) (dormouse.StateCache, error) {
	state, err := first(list(ctx, s, func(row pgx.CollectableRow) (t dormouse.StateCache, err error) {
		err = row.Scan(&t.Seq, &t.Version, &t.Data)
		return t, err
	}, `SELECT seq, version, data FROM states WHERE session = `+key, id))
	if errors.Is(err, dormouse.ErrNotFound) {
		return dormouse.StateCache{}, nil
	}
	return state, wrap(err, "load state of", id)
}

// Chunks returns an open op's chunks in order.
func (s *Store) Chunks(ctx context.Context, id dormouse.SessionID, op dormouse.OpID) ([]store.Chunk, error) {
	chunks, err := list(ctx, s, func(row pgx.CollectableRow) (c store.Chunk, err error) {
		err = row.Scan(&c.Op, &c.N, &c.Text)
		return c, err
	}, `SELECT op, n, text FROM chunks WHERE session = `+key+` AND op = $2 ORDER BY n`, id, op)
	return chunks, wrap(err, "load chunks of", id)
}

// Epoch returns the newest epoch of a session.
func (s *Store) Epoch(ctx context.Context, id dormouse.SessionID) (store.Epoch, error) {
	epoch, err := first(list(ctx, s, pgx.RowTo[store.Epoch], `SELECT epoch FROM sessions WHERE id = $1`, id))
	return epoch, wrap(err, "look up the epoch of", id)
}

// Named returns those of the digests that an event or a snapshot names. It looks each up
// in the indexes: for two EXISTS the planner might choose to read a whole table.
func (s *Store) Named(ctx context.Context, digests []dormouse.Digest) ([]dormouse.Digest, error) {
	named, err := list(ctx, s, pgx.RowTo[dormouse.Digest], `SELECT named FROM unnest($1::text[]) AS named WHERE EXISTS (
		SELECT 1 FROM events JOIN sessions ON sessions.key = events.session WHERE blob = named AND blob <> ''
		UNION ALL
		SELECT 1 FROM names JOIN sessions ON sessions.key = names.session WHERE digest = named)`, digests)
	return named, wrap(err, "look for names of", len(digests))
}

// list runs a query and reads every row of its answer.
func list[T any](ctx context.Context, s *Store, read pgx.RowToFunc[T], query string, args ...any) (found []T, err error) {
	err = s.withReader(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, query, args...)
		if err == nil {
			found, err = pgx.AppendRows(found[:0], rows, read)
		}
		return err
	})
	return found, err
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

// timeOrZero reads NULL as the zero time.
func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
