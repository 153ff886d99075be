package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Create stores the first events of a session.
func (s *Store) Create(ctx context.Context, b store.Batch) error {
	return wrap(s.appendBatch(ctx, b, b.ValidateFirst(), true), "create", b.Session)
}

// Import stores the first events of a session that has lived elsewhere.
func (s *Store) Import(ctx context.Context, b store.Batch) error {
	return wrap(s.appendBatch(ctx, b, b.ValidateImport(), true), "import", b.Session)
}

// Append adds a batch to a session's log.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	return wrap(s.appendBatch(ctx, b, b.Validate(), false), "append to", b.Session)
}

func (s *Store) appendBatch(ctx context.Context, b store.Batch, invalid error, creates bool) error {
	enc, err := encode(b)
	if err := errors.Join(invalid, err); err != nil {
		return err
	}
	j := &job{
		batch: b, encoded: enc, creates: creates,
		queues: slices.ContainsFunc(b.Events, func(e dormouse.Event) bool { return e.Type == dormouse.PromptQueued }),
	}
	if b.Under != nil && !creates {
		j.alone = func(ctx context.Context, tx pgx.Tx) error { return appendUnder(ctx, tx, j) }
	}
	return s.writer(b.Session).Write(ctx, j)
}

// appendUnder appends what another session asked for, as long as the sender still owns
// that session. The lock lets it be written but not be claimed before this is committed.
func appendUnder(ctx context.Context, tx pgx.Tx, j *job) error {
	var epoch, last uint64
	under := j.batch.Under
	err := tx.QueryRow(ctx, `SELECT epoch FROM sessions WHERE id = $1 FOR KEY SHARE`, under.Session).Scan(&epoch)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !epochMatches(epoch, under.Epoch) {
		return fmt.Errorf("under %s: %w", under.Session, store.ErrStaleSender)
	}
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT key, epoch, last_seq FROM sessions WHERE id = $1 FOR NO KEY UPDATE`, j.batch.Session).Scan(&j.key, &epoch, &last)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return dormouse.ErrNotFound
	case err != nil:
		return err
	case !epochMatches(epoch, j.batch.Epoch):
		return dormouse.ErrLeaseLost
	case last != j.batch.After:
		return dormouse.ErrConflict
	}
	l := newLayout()
	if j.batch.Rows != nil {
		l.updateSessions.add(j)
	}
	l.addRows(j, cached{})
	return l.send(ctx, tx.Conn())
}

// Mark sets what the index row says of a damaged log.
func (s *Store) Mark(ctx context.Context, id dormouse.SessionID, epoch store.Epoch, damage string) error {
	j := &job{batch: store.Batch{Session: id}, alone: func(ctx context.Context, tx pgx.Tx) error {
		var at store.Epoch
		err := tx.QueryRow(ctx, `SELECT epoch FROM sessions WHERE id = $1 FOR NO KEY UPDATE`, id).Scan(&at)
		switch {
		case err == nil && !epochMatches(at, epoch), errors.Is(err, pgx.ErrNoRows):
			return dormouse.ErrLeaseLost
		case err != nil:
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE sessions SET damage = $2 WHERE id = $1`, id, damage)
		return err
	}}
	return wrap(s.writer(id).Write(ctx, j), "mark", id)
}

// Rebuild replaces every derived row of a session.
func (s *Store) Rebuild(ctx context.Context, id dormouse.SessionID, rows dormouse.Rows) error {
	b := store.Batch{Session: id, After: rows.Session.Seq, Rows: &rows}
	enc, err := encode(b)
	if err = errors.Join(b.Validate(), err); err == nil {
		j := &job{batch: b, encoded: enc}
		j.alone = func(ctx context.Context, tx pgx.Tx) error { return rebuild(ctx, tx, j) }
		err = s.writer(id).Write(ctx, j)
	}
	return wrap(err, "rebuild", id)
}

// rebuild goes in under whatever epoch there is; only the seq can be wrong. The index row
// may say less than the log has, and is mended then, but not more.
func rebuild(ctx context.Context, tx pgx.Tx, j *job) error {
	var said, last int64
	err := tx.QueryRow(ctx, `SELECT key, epoch, last_seq FROM sessions WHERE id = $1 FOR NO KEY UPDATE`, j.batch.Session).
		Scan(&j.key, &j.batch.Epoch, &said)
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT coalesce(max(seq), 0) FROM events WHERE session = $1`, j.key).Scan(&last)
	}
	seq := signed(j.batch.Rows.Session.Seq)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return dormouse.ErrNotFound
	case err != nil:
		return err
	case last != seq || said > seq:
		return dormouse.ErrConflict
	}
	for _, t := range []string{"labels", "prompts", "ops", "points", "names", "client_ids", "states"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+t+` WHERE session = $1`, j.key); err != nil {
			return err
		}
	}
	l := newLayout()
	j.batch.After = unsigned(said)
	l.updateSessions.add(j)
	l.addRows(j, cached{epoch: j.batch.Epoch, labels: noLabels.sum})
	if err := l.send(ctx, tx.Conn()); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM chunks WHERE session = $1
		AND op NOT IN (SELECT id FROM ops WHERE session = $1 AND status = 'started')`, j.key)
	return err
}
