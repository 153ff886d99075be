package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// sweepBatch is how many rows are removed in one transaction. All rows of a long
// session in one would block other writers for a second.
const sweepBatch = 100

// Delete removes a session. It is gone for every reader at once; its rows are
// removed afterwards, a slice at a time, so that no writer has to wait for all.
func (s *Store) Delete(ctx context.Context, id dormouse.SessionID, epoch store.Epoch) error {
	err := s.writer.Write(ctx, &job{do: func(ctx context.Context, c *conn) error { return c.remove(ctx, id, epoch) }})
	if err != nil {
		return fmt.Errorf("delete %s: %w", id, err)
	}
	select {
	case s.removed <- struct{}{}:
	default:
	}
	return nil
}

func (c *conn) remove(ctx context.Context, id dormouse.SessionID, epoch store.Epoch) error {
	r, err := c.row(ctx, id)
	if errors.Is(err, dormouse.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.checkEpoch(ctx, dormouse.Fence{Session: id, Epoch: epoch}); err != nil {
		return err
	}
	delete(c.rows, string(id))
	for _, s := range []statement{removeSession, markRemoved} {
		if _, err := c.exec(ctx, s, r.key); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what deleted sessions left, now and whenever there is more. What
// it cannot remove, because the disk is full or the store closes, it finds again
// after the next delete or when the store is opened next.
func (s *Store) sweep(ctx context.Context) {
	for {
		for more := true; more; {
			err := s.writer.Write(ctx, &job{do: func(ctx context.Context, c *conn) (err error) {
				more, err = c.sweep(ctx)
				return err
			}})
			more = more && err == nil
		}
		select {
		case <-s.removed:
		case <-s.writer.closing:
			return
		}
	}
}

// sweep removes a slice of what one deleted session left, and reports whether
// there may be more.
func (c *conn) sweep(ctx context.Context) (more bool, err error) {
	var v [1]driver.Value
	found, err := c.queryRow(ctx, findRemoved, v[:])
	if !found || err != nil {
		return false, err
	}
	for _, s := range []statement{sweepEvents, sweepPrompts, sweepOps, sweepSnapshotBlobs, sweepNames, sweepClientIDs, sweepChunks} {
		n, err := c.exec(ctx, s, v[0], int64(sweepBatch))
		if err != nil {
			return false, err
		}
		if n > 0 {
			return true, nil
		}
	}
	for _, s := range []statement{dropLabels, dropState, dropRemoved} {
		if _, err := c.exec(ctx, s, v[0]); err != nil {
			return false, err
		}
	}
	return true, nil
}
