// Package postgres is the store that several servers share: a PostgreSQL
// database, reached through pgx.
//
// Writes that arrive together share a commit, and a commit is on the disk before any of
// them is acknowledged. Every append is fenced in the database by the session's epoch
// and last seq, so that a server which lost a session cannot write it, whatever it
// believes.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Options are what may be chosen about a store.
type Options struct {
	// Readers bounds the connections that read at once; 0 means 8. A server has
	// up to eight more, for other things.
	Readers int
	// Logger gets what an operator should know of the database; nil discards it.
	Logger *slog.Logger
}

const (
	// writers is how many connections write at once. With two, one is filled while
	// the other waits for the disk.
	writers = 2
	// controlConns is how many connections do what is neither reading nor appending.
	controlConns = 3
)

// Store is a database, as one server sees it.
type Store struct {
	log     *slog.Logger
	readers *pgxpool.Pool
	control *pgxpool.Pool
	writers [writers]*writer
	seed    maphash.Seed

	// The lease has a connection of its own, so that nothing else can delay its renewal.
	lease       *dedicatedConn
	leaseLength atomic.Int64 // of the lease, in nanoseconds
	incarnation atomic.Uint64
	clock       clock

	steps      []store.Step // those that this program knows
	epochFloor string       // what an epoch is at least, in SQL

	notifier *notifier
	listener *pgx.ConnConfig
	removed  chan struct{} // has an element when something was removed

	closing chan struct{}
	once    sync.Once
	running sync.WaitGroup
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.Shared = (*Store)(nil)
)

// Open connects to a database and brings its schema forward. It refuses a server
// that it cannot keep its promises on with ErrServer and a database of a newer
// version with store.ErrNewer.
func Open(ctx context.Context, dsn string, o Options) (_ *Store, err error) {
	base, err := configure(dsn, nil)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("open database %s on %s: %w", base.Database, base.Host, explain(err))
		}
	}()
	s := &Store{log: o.Logger, seed: maphash.MakeSeed(), removed: make(chan struct{}, 1), closing: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.steps, err = store.Steps(migrations); err != nil {
		return nil, err
	}
	if err := retry(ctx, nil, serverBusy, func(ctx context.Context) error { return s.prepare(ctx, base) }); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, dsn, o.Readers); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	for _, w := range s.writers {
		s.running.Go(func() { w.run(ctx) })
	}
	s.running.Go(func() { s.notifier.run(ctx) })
	s.running.Go(func() { s.sweep(ctx) })
	return s, nil
}

// prepare looks at the server, learns its time and brings the schema forward.
func (s *Store) prepare(ctx context.Context, base *pgx.ConnConfig) (err error) {
	c, err := pgx.ConnectConfig(ctx, base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	if err := refusePooler(ctx, c, base); err != nil {
		return err
	}
	warnings, err := inspectServer(ctx, c)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		s.log.WarnContext(ctx, "database may lose data", "reason", w)
	}
	if err := s.clock.sync(ctx, c); err != nil {
		return err
	}
	s.epochFloor = `((` + timeline + ` - 1) << 32) + 1`
	if _, err := c.Exec(ctx, `SELECT `+s.epochFloor); code(err) != "" {
		s.log.WarnContext(ctx, "database does not say when it was promoted", "error", err)
		s.epochFloor = `0`
	}
	return migrate(context.WithoutCancel(ctx), c, s.steps, s.log)
}

// connect makes the pools and the writers. None of them dials before it is needed.
func (s *Store) connect(ctx context.Context, dsn string, readers int) (err error) {
	if readers == 0 {
		readers = 8
	}
	if s.readers, err = newPool(ctx, dsn, readers); err != nil {
		return err
	}
	if s.control, err = newPool(ctx, dsn, controlConns); err != nil {
		s.readers.Close()
		return err
	}
	// A group is many rows by their keys, whatever the planner thinks of a table
	// that has just been made.
	writing, err1 := configure(dsn, map[string]string{
		"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
	})
	leasing, err2 := configure(dsn, nil)
	// Notifications need not be on the disk.
	notifying, err3 := configure(dsn, map[string]string{"synchronous_commit": "off"})
	listening, err4 := configure(dsn, nil)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		s.readers.Close()
		s.control.Close()
		return err
	}
	s.lease = newDedicatedConn(leasing)
	s.notifier = newNotifier(newDedicatedConn(notifying), &s.incarnation, s.closing)
	s.listener = listening
	for i := range s.writers {
		s.writers[i] = newWriter(func(ctx context.Context) (*pgx.Conn, error) { return dialWriter(ctx, writing) }, s.closing, s.notifier.notify)
	}
	return nil
}

func dialWriter(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

func newPool(ctx context.Context, dsn string, size int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	if config.ConnConfig, err = configure(dsn, nil); err != nil {
		return nil, err
	}
	config.MaxConns = int32(min(size, 1000)) //nolint:gosec // it fits
	return pgxpool.NewWithConfig(ctx, config)
}

// writer is the one that writes a session.
func (s *Store) writer(id dormouse.SessionID) *writer {
	return s.writers[maphash.String(s.seed, string(id))%writers]
}

// Check writes a row and reports whether that worked.
func (s *Store) Check(ctx context.Context) error {
	err := s.withControl(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, `UPDATE checks SET n = n + 1 WHERE one = 1`)
		return err
	})
	return wrap(err, "check", "database")
}

// Close writes what waits and gives every connection back.
func (s *Store) Close() error {
	s.once.Do(func() {
		close(s.closing)
		s.running.Wait()
		s.lease.disconnect()
		s.readers.Close()
		s.control.Close()
	})
	return nil
}

// closed reports whether the store is being closed.
func (s *Store) closed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}
