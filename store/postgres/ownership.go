package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// unowned is the condition that no other server owns a session: its owner has no live
// lease, or is the incarnation in parameter 1. Incarnation 0 is no server.
const unowned = `(server IS NULL OR server = $1 OR NOT EXISTS (SELECT 1 FROM servers WHERE incarnation = server AND ` + lives + `))`

// claimTimeout is how long a server may take to claim what it took. After that it
// is given it again: the answer that named it may never have arrived.
const claimTimeout = 3 * time.Second

// timeline counts how often this database was promoted from a replica or
// restored from a backup. Either may have forgotten claims that servers and
// sandboxes remember, so every claim in a later timeline is higher than any in
// an earlier one.
const timeline = `('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint`

// Claim takes the right to write a session. The row is locked first and read afterwards,
// because a read that began before the lock could miss an owner that joined in between.
// The lock also keeps children from being created under the epoch that ends.
func (s *Store) Claim(ctx context.Context, id dormouse.SessionID, above store.Epoch) (epoch store.Epoch, err error) {
	me := signed(s.incarnation.Load())
	err = s.withControl(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		b := new(pgx.Batch)
		b.Queue(`SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE`, id)
		b.Queue(`UPDATE sessions SET epoch = greatest(epoch + 1, $4::bigint + 1, `+s.epochFloor+`), server = nullif($1, 0), taken = NULL
			WHERE id = $2 AND `+unowned+` AND needs <= $3 AND ($1 = 0 OR EXISTS (SELECT 1 FROM servers WHERE incarnation = $1 AND `+lives+`))
			RETURNING epoch`, me, id, dormouse.LogVersion, signed(above))
		b.Queue(`SELECT EXISTS (SELECT 1 FROM servers WHERE incarnation = $1 AND `+lives+`),
			coalesce(v.incarnation, 0), coalesce(v.name, ''), coalesce(v.addr, ''), coalesce(v.place, ''), needs
			FROM sessions LEFT JOIN servers v ON v.incarnation = server AND v.`+lives+` WHERE id = $2`, me, id)
		r := c.SendBatch(ctx, b)
		var refusal error
		_, err := r.Exec()
		if err == nil {
			err = r.QueryRow().Scan(&epoch)
		}
		if errors.Is(err, pgx.ErrNoRows) {
			refusal, err = claimRefusal(r.QueryRow(), id, me)
		}
		// The pipeline is a transaction, and it ends here.
		if ended := r.Close(); err == nil {
			err = ended
		}
		if err == nil {
			err = refusal
		}
		return err
	})
	return epoch, wrap(err, "claim", id)
}

// claimRefusal reads why a claim was refused.
func claimRefusal(row pgx.Row, id dormouse.SessionID, me int64) (refusal, err error) {
	var alive bool
	e := &store.ElsewhereError{Session: id}
	newer := &dormouse.NewerLogError{Session: id}
	err = row.Scan(&alive, &e.Owner.Incarnation, &e.Owner.Name, &e.Owner.Addr, &e.Owner.Place, &newer.Needs)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return dormouse.ErrNotFound, nil
	case err != nil:
		return nil, err
	case me != 0 && !alive:
		return dormouse.ErrLeaseLost, nil
	case newer.Needs > dormouse.LogVersion && (e.Owner.Incarnation == 0 || signed(e.Owner.Incarnation) == me):
		return newer, nil
	}
	return e, nil
}

// Take makes this server the owner of due sessions without a live owner.
func (s *Store) Take(ctx context.Context, t time.Time, limit int, except ...dormouse.SessionID) (ids []dormouse.SessionID, err error) {
	me := signed(s.incarnation.Load())
	err = s.withControl(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) (err error) {
			ids, err = take(ctx, tx, me, t, limit, except)
			return err
		})
	})
	return ids, wrap(err, "take sessions due at", t)
}

// take locks first and looks again afterwards, as a claim does.
func take(ctx context.Context, tx pgx.Tx, me int64, t time.Time, limit int, except []dormouse.SessionID) ([]dormouse.SessionID, error) {
	var alive bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM servers WHERE incarnation = $1 AND `+lives+`)`, me).Scan(&alive)
	if err == nil && !alive {
		err = dormouse.ErrLeaseLost
	}
	if err != nil {
		return nil, err
	}
	const mine = ` AND (server IS DISTINCT FROM $1 OR taken < clock_timestamp() - $2::interval)`
	rows, err := tx.Query(ctx, `SELECT key FROM sessions WHERE due <= $3 AND needs <= $5 AND id <> ALL ($6) AND `+unowned+mine+`
		ORDER BY due, key LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED`, me, claimTimeout, t, max(limit, 0), dormouse.LogVersion, append([]dormouse.SessionID{}, except...))
	if err != nil {
		return nil, err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	rows, err = tx.Query(ctx, `UPDATE sessions SET server = $1, taken = clock_timestamp()
		WHERE key = ANY ($3) AND needs <= $4 AND `+unowned+mine+` RETURNING key, id`, me, claimTimeout, keys, dormouse.LogVersion)
	if err != nil {
		return nil, err
	}
	type taken struct {
		Key int64
		ID  dormouse.SessionID
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[taken])
	if err != nil {
		return nil, err
	}
	var ids []dormouse.SessionID
	for _, key := range keys {
		if i := slices.IndexFunc(found, func(f taken) bool { return f.Key == key }); i >= 0 {
			ids = append(ids, found[i].ID)
		}
	}
	return ids, nil
}

// Release gives up a session that this server owns under epoch.
func (s *Store) Release(ctx context.Context, id dormouse.SessionID, epoch store.Epoch) error {
	err := s.withControl(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, `UPDATE sessions SET server = NULL, taken = NULL WHERE id = $1 AND server = $2 AND epoch = $3`,
			id, signed(s.incarnation.Load()), signed(epoch))
		return err
	})
	return wrap(err, "release", id)
}

// Where says how far sessions go and which live server owns them.
func (s *Store) Where(ctx context.Context, ids ...dormouse.SessionID) ([]store.Location, error) {
	places, err := list(ctx, s, func(row pgx.CollectableRow) (p store.Location, err error) {
		var owner store.Server
		err = row.Scan(&p.Session, &p.Seq, &owner.Incarnation, &owner.Name, &owner.Addr, &owner.Place)
		if owner.Incarnation != 0 {
			p.Owner = &owner
		}
		return p, err
	}, `SELECT s.id, s.last_seq, coalesce(v.incarnation, 0), coalesce(v.name, ''), coalesce(v.addr, ''), coalesce(v.place, '')
		FROM unnest($1::text[]) WITH ORDINALITY AS asked (id, n) JOIN sessions s ON s.id = asked.id
		LEFT JOIN servers v ON v.incarnation = s.server AND v.`+lives+` ORDER BY asked.n`, ids)
	return places, wrap(err, "look for", len(ids))
}
