package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Create stores the first events of a session.
func (s *Store) Create(ctx context.Context, b store.Batch) error {
	return s.log(ctx, "create", b, b.ValidateFirst(), func(ctx context.Context, c *conn, ops []string) error {
		i := b.Rows.Index
		n, err := c.exec(ctx, createSession, string(i.Session), i.Tenant, string(i.Owner), string(i.Parent), i.Title,
			string(i.Phase), string(i.Status), micros(i.Created), micros(i.Updated), signed(i.Seq), maybe(i.Due))
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
		r.index = i
		return c.add(ctx, r, b, ops)
	})
}

// Append adds a batch to a session's log.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	return s.log(ctx, "append to", b, b.Validate(), func(ctx context.Context, c *conn, ops []string) error {
		r, err := c.row(ctx, b.Session)
		if err != nil {
			return err
		}
		if err := c.pass(ctx, r, b); err != nil {
			return err
		}
		return c.add(ctx, r, b, ops)
	})
}

// log hands in a job that adds events. What can be worked out before the
// writer's turn is worked out here, in the caller's own time.
func (s *Store) log(ctx context.Context, verb string, b store.Batch, invalid error, do func(context.Context, *conn, []string) error) error {
	ops, err := encode(b.Rows)
	err = errors.Join(invalid, err)
	if err == nil {
		err = s.writer.write(ctx, &job{
			do:   func(ctx context.Context, c *conn) error { return do(ctx, c, ops) },
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

// encode spells the ops of rows, in order.
func encode(r *store.Rows) ([]string, error) {
	if r == nil || len(r.Ops) == 0 {
		return nil, nil
	}
	all := make([]string, len(r.Ops))
	for i, o := range r.Ops {
		b, err := json.Marshal(o.Op)
		if err != nil {
			return nil, err
		}
		all[i] = string(b)
	}
	return all, nil
}

// Claim takes the right to write a session.
func (s *Store) Claim(ctx context.Context, id dormouse.SessionID) (store.Epoch, error) {
	var epoch int64
	err := s.writer.write(ctx, &job{do: func(ctx context.Context, c *conn) error {
		var dest [1]driver.Value
		found, err := c.one(ctx, claimSession, dest[:], string(id))
		if err != nil {
			return err
		}
		if !found {
			return dormouse.ErrNotFound
		}
		epoch, err = integer(dest[0])
		return err
	}})
	if err != nil {
		return 0, fmt.Errorf("claim %s: %w", id, err)
	}
	return unsigned(epoch), nil
}

// Rebuild replaces every derived row of a session.
func (s *Store) Rebuild(ctx context.Context, id dormouse.SessionID, rows store.Rows) error {
	b := store.Batch{Session: id, After: rows.Index.Seq, Rows: &rows}
	ops, err := encode(&rows)
	err = errors.Join(b.Validate(), err)
	if err == nil {
		err = s.writer.write(ctx, &job{do: func(ctx context.Context, c *conn) error { return c.rebuild(ctx, b, ops) }})
	}
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", id, err)
	}
	return nil
}

func (c *conn) rebuild(ctx context.Context, b store.Batch, ops []string) error {
	r, err := c.row(ctx, b.Session)
	if err != nil {
		return err
	}
	// A rebuild goes in under whatever epoch there is; only the seq can be wrong.
	if b.Epoch, _, err = c.fence(ctx, r); err != nil {
		return err
	}
	if err := c.update(ctx, rewriteSession, r, b); err != nil {
		return err
	}
	r.deadlines = nil
	for _, drop := range []statement{dropPrompts, dropOps, dropDeadlines, dropState} {
		if _, err := c.exec(ctx, drop, r.key); err != nil {
			return err
		}
	}
	if err := c.addRows(ctx, r, *b.Rows, ops); err != nil {
		return err
	}
	_, err = c.exec(ctx, dropClosedChunks, r.key, r.key)
	return err
}

// row is what the writer knows of a session: its key, and its index and
// deadlines once it has written them itself. What has not changed is not
// written again.
type row struct {
	key       int64
	index     store.Index
	deadlines []dormouse.Deadline
}

// remembered bounds the rows that are kept in memory.
const remembered = 1 << 16

// row finds a session.
func (c *conn) row(ctx context.Context, id dormouse.SessionID) (*row, error) {
	if r, ok := c.rows[string(id)]; ok {
		return r, nil
	}
	var v [1]driver.Value
	found, err := c.one(ctx, findSession, v[:], string(id))
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, dormouse.ErrNotFound
	}
	r := &row{}
	if r.key, err = integer(v[0]); err != nil {
		return nil, err
	}
	if len(c.rows) >= remembered {
		clear(c.rows)
	}
	c.rows[string(id)] = r
	return r, nil
}

// pass takes the fence: the batch goes in only under the session's epoch and
// right after its last event.
func (c *conn) pass(ctx context.Context, r *row, b store.Batch) error {
	if b.Epoch == 0 {
		return dormouse.ErrLeaseLost // nobody writes what nobody claimed
	}
	if b.Rows == nil {
		return c.refusal(ctx, r, b)
	}
	was, is := r.index, b.Rows.Index
	was.Seq, was.Updated = is.Seq, is.Updated
	if same(was, is) {
		return c.update(ctx, touchSession, r, b)
	}
	was.Title, was.Phase, was.Status, was.Due = is.Title, is.Phase, is.Status, is.Due
	if same(was, is) {
		return c.update(ctx, moveSession, r, b)
	}
	return c.update(ctx, rewriteSession, r, b)
}

// update changes the index row with one of the three fenced statements.
func (c *conn) update(ctx context.Context, s statement, r *row, b store.Batch) error {
	i := b.Rows.Index
	args := append(make([]driver.Value, 0, 13), signed(i.Seq), micros(i.Updated))
	if s != touchSession {
		args = append(args, i.Title, string(i.Phase), string(i.Status), maybe(i.Due))
	}
	if s == rewriteSession {
		args = append(args, i.Tenant, string(i.Owner), string(i.Parent), micros(i.Created))
	}
	n, err := c.exec(ctx, s, append(args, r.key, signed(b.Epoch), signed(b.After))...)
	if err != nil {
		return err
	}
	if n == 0 {
		if err := c.refusal(ctx, r, b); err != nil {
			return err
		}
		return errors.New("a session was neither updated nor refused")
	}
	r.index = i
	return nil
}

// refusal says why a batch cannot go in, or nil if it can.
func (c *conn) refusal(ctx context.Context, r *row, b store.Batch) error {
	epoch, last, err := c.fence(ctx, r)
	switch {
	case err != nil:
		return err
	case epoch != b.Epoch:
		return dormouse.ErrLeaseLost
	case last != b.After:
		return dormouse.ErrConflict
	}
	return nil
}

// fence returns the epoch of a session and its last seq.
func (c *conn) fence(ctx context.Context, r *row) (epoch store.Epoch, last uint64, err error) {
	var v [2]driver.Value
	found, err := c.one(ctx, lookFence, v[:], r.key)
	if err != nil {
		return 0, 0, err
	}
	if !found {
		return 0, 0, dormouse.ErrNotFound
	}
	e, err1 := integer(v[0])
	l, err2 := integer(v[1])
	return unsigned(e), unsigned(l), errors.Join(err1, err2)
}

// add writes all of a batch that has passed the fence but its index row.
func (c *conn) add(ctx context.Context, r *row, b store.Batch, ops []string) error {
	for _, e := range b.Events {
		var payload driver.Value
		if e.Payload != nil {
			payload = string(e.Payload)
		}
		if _, err := c.exec(ctx, addEvent, r.key, signed(e.Seq), string(e.ID), string(e.Type), string(e.Thread),
			string(e.Actor), micros(e.Time), payload, string(e.Blob)); err != nil {
			return err
		}
	}
	if b.Rows != nil {
		if err := c.addRows(ctx, r, *b.Rows, ops); err != nil {
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

// addRows writes the rows of a session but the index. The ops come spelled.
func (c *conn) addRows(ctx context.Context, r *row, rows store.Rows, ops []string) error {
	for _, p := range rows.Prompts {
		if _, err := c.exec(ctx, putPrompt, r.key, string(p.ID), string(p.Thread), string(p.Status), string(p.Body),
			string(p.Turn), signed(p.Seq), micros(p.Queued)); err != nil {
			return err
		}
	}
	for i, o := range rows.Ops {
		if _, err := c.exec(ctx, putOp, r.key, string(o.ID), ops[i], string(o.Status), o.Outcome,
			micros(o.Started), maybe(o.Finished)); err != nil {
			return err
		}
		if o.Status != dormouse.OpOpen {
			if _, err := c.exec(ctx, dropChunks, r.key, string(o.ID)); err != nil {
				return err
			}
		}
	}
	if rows.Deadlines == nil || r.deadlines != nil && slices.EqualFunc(rows.Deadlines, r.deadlines, alike) {
		return nil
	}
	if _, err := c.exec(ctx, dropDeadlines, r.key); err != nil {
		return err
	}
	for _, d := range rows.Deadlines {
		if _, err := c.exec(ctx, addDeadline, r.key, d.ID, d.Kind, maybe(d.At)); err != nil {
			return err
		}
	}
	r.deadlines = append([]dormouse.Deadline{}, rows.Deadlines...)
	return nil
}

func alike(a, b dormouse.Deadline) bool { return a.ID == b.ID && a.Kind == b.Kind && a.At.Equal(b.At) }

// same reports whether two index rows are stored alike.
func same(a, b store.Index) bool {
	if !a.Created.Equal(b.Created) || !a.Updated.Equal(b.Updated) || !a.Due.Equal(b.Due) {
		return false
	}
	a.Created, a.Updated, a.Due = b.Created, b.Updated, b.Due
	return a == b
}

// signed is how a number of ours is stored; SQLite has no other integers.
func signed(n uint64) int64 {
	return int64(n) //nolint:gosec // what would wrap round is refused by the schema
}

func unsigned(n int64) uint64 {
	return uint64(n) //nolint:gosec // the schema keeps no negative number
}

// integer takes an integer out of an answer.
func integer(v driver.Value) (int64, error) {
	n, ok := v.(int64)
	if !ok {
		return 0, fmt.Errorf("an integer is stored as %T", v)
	}
	return n, nil
}

// micros is how a time is stored.
func micros(t time.Time) int64 { return t.UnixMicro() }

// maybe stores the zero time as NULL.
func maybe(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return micros(t)
}
