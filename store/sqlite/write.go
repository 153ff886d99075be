package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Create stores the first events of a session.
func (s *Store) Create(ctx context.Context, b store.Batch) error {
	return s.log(ctx, "create", b, b.ValidateFirst(), (*conn).begin)
}

// Import stores the first events of a session that has lived elsewhere.
func (s *Store) Import(ctx context.Context, b store.Batch) error {
	return s.log(ctx, "import", b, b.ValidateImport(), (*conn).begin)
}

// begin adds a session with its first batch.
func (c *conn) begin(ctx context.Context, b store.Batch, enc encoded) error {
	if err := c.checkSender(ctx, b.Under); err != nil {
		return err
	}
	args := append(make([]driver.Value, 0, 18), string(b.Session), signed(b.Epoch))
	n, err := c.exec(ctx, createSession, enc.rewritten.args(enc.moved.args(enc.touched.args(args)))...)
	if err != nil {
		return err
	}
	if n == 0 {
		return dormouse.ErrConflict
	}
	r, err := c.row(ctx, b.Session)
	if err != nil {
		return err
	}
	r.moved, r.rewritten, r.labels = enc.moved, enc.rewritten, &noLabels
	return c.add(ctx, r, b, enc)
}

// checkSender refuses a sender that has lost the session in whose name it sends.
func (c *conn) checkSender(ctx context.Context, f *dormouse.Fence) error {
	if f == nil {
		return nil
	}
	err := c.checkEpoch(ctx, *f)
	if errors.Is(err, dormouse.ErrLeaseLost) {
		err = fmt.Errorf("under %s: %w", f.Session, store.ErrStaleSender)
	}
	return err
}

// checkEpoch refuses a server that has lost a session.
func (c *conn) checkEpoch(ctx context.Context, f dormouse.Fence) error {
	r, err := c.row(ctx, f.Session)
	if errors.Is(err, dormouse.ErrNotFound) {
		return dormouse.ErrLeaseLost
	}
	if err != nil {
		return err
	}
	epoch, _, err := c.fence(ctx, r)
	if err == nil && (f.Epoch == 0 || f.Epoch != epoch) {
		err = dormouse.ErrLeaseLost
	}
	return err
}

// Append adds a batch to a session's log.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	return s.log(ctx, "append to", b, b.Validate(), func(c *conn, ctx context.Context, b store.Batch, enc encoded) error {
		r, err := c.row(ctx, b.Session)
		if err != nil {
			return err
		}
		if err := c.checkSender(ctx, b.Under); err != nil {
			return err
		}
		if err := c.passFence(ctx, r, b, enc); err != nil {
			return err
		}
		return c.add(ctx, r, b, enc)
	})
}

// log hands in a job that adds events. What can be worked out before the
// writer's turn is worked out here, in the caller's own time.
func (s *Store) log(ctx context.Context, verb string, b store.Batch, invalid error, do func(*conn, context.Context, store.Batch, encoded) error) error {
	enc, err := encode(b.Rows)
	err = errors.Join(invalid, err)
	if err == nil {
		err = s.writer.Write(ctx, &job{
			do:   func(ctx context.Context, c *conn) error { return do(c, ctx, b, enc) },
			logs: true,
			queues: slices.ContainsFunc(b.Events, func(e dormouse.Event) bool {
				return e.Type == dormouse.PromptQueued
			}),
		})
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, b.Session, err)
	}
	return nil
}

// Claim takes the right to write a session.
func (s *Store) Claim(ctx context.Context, id dormouse.SessionID, above store.Epoch) (store.Epoch, error) {
	var epoch int64
	err := s.writer.Write(ctx, &job{do: func(ctx context.Context, c *conn) error {
		var dest [1]driver.Value
		found, err := c.queryRow(ctx, claimSession, dest[:], signed(above), string(id), int64(dormouse.LogVersion))
		if err != nil {
			return err
		}
		if !found {
			return c.claimRefusal(ctx, id)
		}
		epoch, err = integer(dest[0])
		return err
	}})
	if err != nil {
		return 0, fmt.Errorf("claim %s: %w", id, err)
	}
	return unsigned(epoch), nil
}

// claimRefusal says why there was no session to claim.
func (c *conn) claimRefusal(ctx context.Context, id dormouse.SessionID) error {
	var dest [1]driver.Value
	found, err := c.queryRow(ctx, lookNeeds, dest[:], string(id))
	if err != nil {
		return err
	}
	if !found {
		return dormouse.ErrNotFound
	}
	needs, err := integer(dest[0])
	if err != nil {
		return err
	}
	return &dormouse.NewerLogError{Session: id, Needs: int(needs)}
}

// Mark sets what the index row says of a damaged log.
func (s *Store) Mark(ctx context.Context, id dormouse.SessionID, epoch store.Epoch, damage string) error {
	err := s.writer.Write(ctx, &job{do: func(ctx context.Context, c *conn) error {
		if err := c.checkEpoch(ctx, dormouse.Fence{Session: id, Epoch: epoch}); err != nil {
			return err
		}
		r, err := c.row(ctx, id)
		if err != nil {
			return err
		}
		// The row was marked as damaged and perhaps could not be read: the next append
		// writes all of it.
		*r = row{key: r.key}
		_, err = c.exec(ctx, markSession, damage, r.key)
		return err
	}})
	if err != nil {
		return fmt.Errorf("mark %s: %w", id, err)
	}
	return nil
}

// Rebuild replaces every derived row of a session.
func (s *Store) Rebuild(ctx context.Context, id dormouse.SessionID, rows dormouse.Rows) error {
	b := store.Batch{Session: id, After: rows.Session.Seq, Rows: &rows}
	enc, err := encode(&rows)
	err = errors.Join(b.Validate(), err)
	if err == nil {
		err = s.writer.Write(ctx, &job{do: func(ctx context.Context, c *conn) error { return c.rebuild(ctx, b, enc) }})
	}
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", id, err)
	}
	return nil
}

func (c *conn) rebuild(ctx context.Context, b store.Batch, enc encoded) error {
	r, err := c.row(ctx, b.Session)
	if err != nil {
		return err
	}
	// A rebuild is written under whatever epoch there is; only the seq can be wrong.
	if err := c.checkLastSeq(ctx, r, b.Rows.Session.Seq); err != nil {
		return err
	}
	args := enc.rewritten.args(enc.moved.args(enc.touched.args(make([]driver.Value, 0, 17))))
	if _, err := c.exec(ctx, layOutSession, append(args, r.key)...); err != nil {
		return err
	}
	r.moved, r.rewritten = enc.moved, enc.rewritten
	r.labels = nil
	for _, drop := range []statement{dropPrompts, dropOps, dropAllSnapshotBlobs, dropNames, dropClientIDs, dropState} {
		if _, err := c.exec(ctx, drop, r.key); err != nil {
			return err
		}
	}
	if err := c.addRows(ctx, r, *b.Rows, enc); err != nil {
		return err
	}
	_, err = c.exec(ctx, dropClosedChunks, r.key, r.key)
	return err
}

// checkLastSeq refuses a seq that is not that of the last event, or is before what the index
// row says is the last.
func (c *conn) checkLastSeq(ctx context.Context, r *row, seq uint64) error {
	var v [2]driver.Value
	found, err := c.queryRow(ctx, lookLast, v[:], r.key)
	if err != nil {
		return err
	}
	if !found {
		return dormouse.ErrNotFound
	}
	last, err1 := integer(v[0])
	said, err2 := integer(v[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if last != signed(seq) || said > signed(seq) {
		return dormouse.ErrConflict
	}
	return nil
}

// add writes all of a batch that has passed the fence but its index row.
func (c *conn) add(ctx context.Context, r *row, b store.Batch, enc encoded) error {
	for _, e := range b.Events {
		var payload driver.Value
		if e.Payload != nil {
			payload = string(e.Payload)
		}
		if _, err := c.exec(ctx, addEvent, r.key, signed(e.Seq), string(e.ID), string(e.Type), string(e.Thread),
			string(e.Actor), micros(e.Time), payload, string(e.Blob), store.Sum(b.Session, e)); err != nil {
			return err
		}
	}
	if b.Rows != nil {
		if err := c.addRows(ctx, r, *b.Rows, enc); err != nil {
			return err
		}
	}
	for _, p := range b.Chunks {
		if _, err := c.exec(ctx, putChunk, r.key, string(p.Op), int64(p.N), p.Text, r.key, string(p.Op)); err != nil {
			return err
		}
	}
	if b.State != nil {
		if _, err := c.exec(ctx, putState, r.key, signed(b.State.Seq), int64(b.State.Version), b.State.Data); err != nil {
			return err
		}
	}
	return nil
}

// addRows writes the rows of a session but the index.
func (c *conn) addRows(ctx context.Context, r *row, rows dormouse.Rows, enc encoded) error {
	if err := c.writeLabels(ctx, r, enc.labels); err != nil {
		return err
	}
	for _, p := range rows.Prompts {
		if _, err := c.exec(ctx, putPrompt, r.key, string(p.ID), string(p.Thread), string(p.Status), string(p.Body),
			string(p.Turn), signed(p.Seq), micros(p.Queued)); err != nil {
			return err
		}
	}
	for i, o := range rows.Ops {
		if _, err := c.exec(ctx, putOp, r.key, string(o.ID), enc.ops[i], string(o.Status), o.Outcome,
			micros(o.Started), nullableMicros(o.Finished)); err != nil {
			return err
		}
		if o.Status != dormouse.OpOpen {
			if _, err := c.exec(ctx, dropChunks, r.key, string(o.ID)); err != nil {
				return err
			}
		}
	}
	if err := c.writeNames(ctx, r, rows, enc.names); err != nil {
		return err
	}
	for _, id := range rows.ClientIDs {
		if _, err := c.exec(ctx, addClientID, r.key, id.ID, signed(id.Seq)); err != nil {
			return err
		}
	}
	return nil
}

// writeLabels writes what people put on a session.
func (c *conn) writeLabels(ctx context.Context, r *row, l labels) (err error) {
	switch {
	case r.labels != nil && *r.labels == l:
		return nil
	case l == noLabels:
		_, err = c.exec(ctx, dropLabels, r.key)
	default:
		_, err = c.exec(ctx, putLabels, r.key, l.tags, l.metadata, l.search)
	}
	r.labels = &l
	return err
}

// writeNames writes which blobs snapshots name, and removes the names that none has any more.
func (c *conn) writeNames(ctx context.Context, r *row, rows dormouse.Rows, digests []string) error {
	var fewer int64
	forget := func(id dormouse.SnapshotID) error {
		n, err := c.exec(ctx, unname, r.key, string(id))
		fewer += n
		return err
	}
	for i, n := range rows.SnapshotBlobs {
		if err := forget(n.Snapshot); err != nil {
			return err
		}
		if _, err := c.exec(ctx, putSnapshotBlobs, r.key, string(n.Snapshot), digests[i]); err != nil {
			return err
		}
		if _, err := c.exec(ctx, addNames, r.key, digests[i]); err != nil {
			return err
		}
	}
	for _, id := range rows.Released {
		if err := forget(id); err != nil {
			return err
		}
		if _, err := c.exec(ctx, dropSnapshotBlobs, r.key, string(id)); err != nil {
			return err
		}
	}
	if fewer == 0 {
		return nil
	}
	_, err := c.exec(ctx, dropUnnamed, r.key)
	return err
}
