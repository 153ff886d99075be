package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Create stores the first events of a session.
func (s *Store) Create(ctx context.Context, b store.Batch) error {
	return wrap(s.append(ctx, b, b.ValidateFirst(), true), "create", b.Session)
}

// Import stores the first events of a session that has lived elsewhere.
func (s *Store) Import(ctx context.Context, b store.Batch) error {
	return wrap(s.append(ctx, b, b.ValidateImport(), true), "import", b.Session)
}

// Append adds a batch to a session's log.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	return wrap(s.append(ctx, b, b.Validate(), false), "append to", b.Session)
}

func (s *Store) append(ctx context.Context, b store.Batch, invalid error, birth bool) error {
	sp, err := spell(b)
	if err := errors.Join(invalid, err); err != nil {
		return err
	}
	return s.lane(b.Session).write(ctx, &job{
		batch: b, spelled: sp, birth: birth,
		queues: slices.ContainsFunc(b.Events, func(e dormouse.Event) bool { return e.Type == dormouse.PromptQueued }),
	})
}

// Rebuild replaces every derived row of a session.
func (s *Store) Rebuild(ctx context.Context, id dormouse.SessionID, rows store.Rows) error {
	b := store.Batch{Session: id, After: rows.Index.Seq, Rows: &rows}
	sp, err := spell(b)
	if err = errors.Join(b.Validate(), err); err == nil {
		j := &job{batch: b, spelled: sp}
		j.alone = func(ctx context.Context, tx pgx.Tx) error { return rebuild(ctx, tx, j) }
		err = s.lane(id).write(ctx, j)
	}
	return wrap(err, "rebuild", id)
}

// rebuild goes in under whatever epoch there is; only the seq can be wrong.
func rebuild(ctx context.Context, tx pgx.Tx, j *job) error {
	var last uint64
	err := tx.QueryRow(ctx, `SELECT key, epoch, last_seq FROM sessions WHERE id = $1 FOR NO KEY UPDATE`, j.batch.Session).
		Scan(&j.key, &j.batch.Epoch, &last)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return dormouse.ErrNotFound
	case err != nil:
		return err
	case last != j.batch.After:
		return dormouse.ErrConflict
	}
	for _, t := range []string{"labels", "prompts", "ops", "deadlines", "points", "names", "client_ids", "states"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+t+` WHERE session = $1`, j.key); err != nil {
			return err
		}
	}
	l := newLayout()
	l.index(l.fences, j)
	l.fences.number(j.batch.After)
	l.rows(j, known{epoch: j.batch.Epoch, labels: unlabelled.mark, deadlines: []dormouse.Deadline{}})
	if err := l.send(ctx, tx.Conn()); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM chunks WHERE session = $1
		AND op NOT IN (SELECT id FROM ops WHERE session = $1 AND status = 'started')`, j.key)
	return err
}
