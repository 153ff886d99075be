package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// serverRetention is how long a server that is gone stays on record, for operators.
const serverRetention = time.Hour

// lives is the condition that the lease of a server has not run out. It does not use
// now(): a transaction may have waited for a lock since it began.
const lives = `lease_until > clock_timestamp()`

// banned is a lease of a server that may not join again. It is removed only by a server
// that has seen the end of that server.
const banned = `lease_until = '-infinity'`

// Join takes a lease for a server and ends the one this store had. Concurrent joins take
// turns, so that each sees the places of the others.
func (s *Store) Join(ctx context.Context, server store.Server, length time.Duration) (store.Server, error) {
	err := s.withLease(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
				return err
			}
			// Another server may have migrated the schema beyond our version since it was
			// opened.
			have, _, err := steps(ctx, tx)
			if err != nil {
				return err
			}
			if _, err := store.Missing(s.steps, have); err != nil {
				return err
			}
			var elsewhere bool
			me := signed(s.incarnation.Load())
			err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM servers WHERE incarnation <> $1 AND place <> $2 AND `+lives+`)`,
				me, server.Place).Scan(&elsewhere)
			if err != nil {
				return err
			}
			if elsewhere {
				return fmt.Errorf("a server lives at another place than %q: %w", server.Place, dormouse.ErrConflict)
			}
			// What is banned meanwhile is not met by the deletion, but by the look after it.
			if _, err := tx.Exec(ctx, `DELETE FROM servers WHERE NOT (`+banned+`) AND
				(incarnation = $1 OR lease_until < clock_timestamp() - $2::interval)`, me, serverRetention); err != nil {
				return err
			}
			var doomed bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM servers WHERE incarnation = $1)`, me).Scan(&doomed); err != nil {
				return err
			}
			if doomed {
				return store.ErrBanned
			}
			return tx.QueryRow(ctx, `INSERT INTO servers (name, addr, place, lease_until)
				VALUES ($1, $2, $3, clock_timestamp() + $4::interval) RETURNING incarnation`,
				server.Name, server.Addr, server.Place, length).Scan(&server.Incarnation)
		})
	})
	if err != nil {
		return store.Server{}, wrap(err, "join as", server.Name)
	}
	s.leaseLength.Store(int64(length))
	s.incarnation.Store(server.Incarnation)
	return server, nil
}

// Renew extends the lease, and learns the time.
func (s *Store) Renew(ctx context.Context) error {
	length := time.Duration(s.leaseLength.Load())
	err := s.withLease(ctx, func(ctx context.Context, c *pgx.Conn) error {
		asked := time.Now()
		var now time.Time
		err := c.QueryRow(ctx, `UPDATE servers SET lease_until = clock_timestamp() + $2::interval
			WHERE incarnation = $1 AND `+lives+` RETURNING clock_timestamp()`, signed(s.incarnation.Load()), length).Scan(&now)
		if errors.Is(err, pgx.ErrNoRows) {
			return dormouse.ErrLeaseLost
		}
		if err == nil {
			s.clock.adjust(now, asked, time.Now())
		}
		return err
	})
	return wrap(err, "renew", "lease")
}

// Leave ends the lease. What it owned is free, since its owner is gone.
func (s *Store) Leave(ctx context.Context) error {
	err := s.withLease(ctx, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `DELETE FROM servers WHERE incarnation = $1`, signed(s.incarnation.Load()))
		return err
	})
	return wrap(err, "end", "lease")
}

// Ban keeps a server from joining again whose lease has run out. One that is no
// longer on record is put there.
func (s *Store) Ban(ctx context.Context, incarnation uint64) (done bool, err error) {
	err = s.withControl(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		tag, err := c.Exec(ctx, `INSERT INTO servers (incarnation, name, addr, place, lease_until) OVERRIDING SYSTEM VALUE
			VALUES ($1, '', '', '', '-infinity')
			ON CONFLICT (incarnation) DO UPDATE SET lease_until = '-infinity' WHERE NOT (servers.`+lives+`)`, signed(incarnation))
		done = err == nil && tag.RowsAffected() == 1
		return err
	})
	return done, wrap(err, "ban", "server")
}

// Unban forgets a server that was banned.
func (s *Store) Unban(ctx context.Context, incarnation uint64) error {
	err := s.withControl(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, `DELETE FROM servers WHERE incarnation = $1 AND `+banned, signed(incarnation))
		return err
	})
	return wrap(err, "unban", "server")
}

// withLease runs f on the connection of the lease.
func (s *Store) withLease(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	if s.closed() {
		return dormouse.ErrClosing
	}
	return explain(s.lease.do(ctx, f))
}

// Servers lists the servers that live, the first to join first.
func (s *Store) Servers(ctx context.Context) ([]store.Server, error) {
	servers, err := list(ctx, s, pgx.RowToStructByPos[store.Server],
		`SELECT incarnation, name, addr, place FROM servers WHERE `+lives+` ORDER BY incarnation`)
	return servers, wrap(err, "list", "servers")
}

// Key returns the secret of the store, and makes it if there is none.
func (s *Store) Key(ctx context.Context) (key []byte, err error) {
	err = s.withControl(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		made := make([]byte, 32)
		_, _ = rand.Read(made) // it cannot fail
		if _, err := c.Exec(ctx, `INSERT INTO keys (one, key) VALUES (1, $1) ON CONFLICT (one) DO NOTHING`, made); err != nil {
			return err
		}
		return c.QueryRow(ctx, `SELECT key FROM keys WHERE one = 1`).Scan(&key)
	})
	return key, wrap(err, "read", "key")
}

// Now is the clock that all servers of the database share.
func (s *Store) Now() time.Time { return s.clock.now() }
