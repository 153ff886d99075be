package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// row is what the writer knows of a session: its key, and the values that it has written.
// Values that have not changed are not written again.
type row struct {
	key       int64
	moved     moved
	rewritten rewritten
	labels    *labels // nil: not known
}

// maxCachedRows bounds the rows that are kept in memory.
const maxCachedRows = 1 << 16

// row finds a session.
func (c *conn) row(ctx context.Context, id dormouse.SessionID) (*row, error) {
	if r, ok := c.rows[string(id)]; ok {
		return r, nil
	}
	var v [1]driver.Value
	found, err := c.queryRow(ctx, findSession, v[:], string(id))
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
	if len(c.rows) >= maxCachedRows {
		clear(c.rows)
	}
	c.rows[string(id)] = r
	return r, nil
}

// passFence checks the fence: the batch is written only under the session's epoch and
// right after its last event.
func (c *conn) passFence(ctx context.Context, r *row, b store.Batch, enc encoded) error {
	switch {
	case b.Epoch == 0:
		return dormouse.ErrLeaseLost // a session that was never claimed cannot be written
	case b.Rows == nil:
		return c.refusal(ctx, r, b)
	case r.rewritten != enc.rewritten:
		return c.update(ctx, rewriteSession, r, b, enc)
	case r.moved != enc.moved:
		return c.update(ctx, moveSession, r, b, enc)
	}
	return c.update(ctx, touchSession, r, b, enc)
}

// update changes the index row with one of the three fenced statements.
func (c *conn) update(ctx context.Context, s statement, r *row, b store.Batch, enc encoded) error {
	args := enc.touched.args(make([]driver.Value, 0, 19))
	if s != touchSession {
		args = enc.moved.args(args)
	}
	if s == rewriteSession {
		args = enc.rewritten.args(args)
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
	r.moved, r.rewritten = enc.moved, enc.rewritten
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
	found, err := c.queryRow(ctx, lookFence, v[:], r.key)
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
