package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// sweepBatch is how many rows of a table are removed in one transaction.
const sweepBatch = 5000

// Delete removes a session. It is gone for every reader at once; its rows are removed
// afterwards, a slice at a time, so that no writer has to wait for all.
func (s *Store) Delete(ctx context.Context, id dormouse.SessionID, epoch store.Epoch) error {
	j := &job{batch: store.Batch{Session: id}, alone: func(ctx context.Context, tx pgx.Tx) error {
		return remove(ctx, tx, id, epoch)
	}}
	if err := s.writer(id).Write(ctx, j); err != nil {
		return wrap(err, "delete", id)
	}
	select {
	case s.removed <- struct{}{}:
	default:
	}
	return nil
}

func remove(ctx context.Context, tx pgx.Tx, id dormouse.SessionID, epoch store.Epoch) error {
	var at store.Epoch
	err := tx.QueryRow(ctx, `SELECT epoch FROM sessions WHERE id = $1 FOR UPDATE`, id).Scan(&at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	case !epochMatches(at, epoch):
		return dormouse.ErrLeaseLost
	}
	_, err = tx.Exec(ctx, `WITH gone AS (DELETE FROM sessions WHERE id = $1 RETURNING key)
		INSERT INTO removed (session) SELECT key FROM gone`, id)
	return err
}

// sweep removes what deleted sessions left, now and whenever there is more. What it
// cannot remove it finds again after the next delete or when the store is opened next.
// Another server may do the same at the same time.
func (s *Store) sweep(ctx context.Context) {
	for {
		for more := true; more && !s.closed(); {
			err := s.withControl(ctx, func(ctx context.Context, c *pgxpool.Conn) (err error) {
				more, err = sweep(ctx, c)
				return err
			})
			more = more && err == nil
		}
		select {
		case <-s.removed:
		case <-s.closing:
			return
		}
	}
}

// sweep removes a slice of what one deleted session left, and reports whether
// there may be more.
func sweep(ctx context.Context, c *pgxpool.Conn) (more bool, err error) {
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		var key int64
		err := tx.QueryRow(ctx, `SELECT session FROM removed LIMIT 1 FOR UPDATE SKIP LOCKED`).Scan(&key)
		if errors.Is(err, pgx.ErrNoRows) {
			more = false
			return nil
		}
		if err != nil {
			return err
		}
		more = true
		for _, t := range []string{"events", "prompts", "ops", "points", "names", "client_ids", "chunks"} {
			done, err := tx.Exec(ctx, `DELETE FROM `+t+` WHERE ctid = ANY (ARRAY(SELECT ctid FROM `+t+` WHERE session = $1 LIMIT $2))`, key, sweepBatch)
			if err != nil || done.RowsAffected() > 0 {
				return err
			}
		}
		for _, t := range []string{"labels", "states", "removed"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+t+` WHERE session = $1`, key); err != nil {
				return err
			}
		}
		return nil
	})
	return more, err
}
