// Package sqlite is the embedded store: one file for all sessions, one goroutine that
// writes it, and any number of readers.
//
// Writes that arrive together share a commit, and a commit is on the disk before any of
// them is acknowledged. A data directory is open in one process only: a lock that ends with
// the process ensures that.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	lib "modernc.org/sqlite/lib"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/store"
)

// file is the name of the database in its data directory.
const file = "dormouse.db"

// Options are what may be chosen about a store.
type Options struct {
	// Readers bounds the connections that read at once; 0 means 4.
	Readers int
	// Logger is told what an operator should know of the database; nil means no log.
	Logger *slog.Logger
}

// Store is a database in a data directory.
type Store struct {
	writer   *writer
	pool     *sql.DB
	lock     *os.File
	closing  sync.Once
	removed  chan struct{} // a session was deleted since it was last read
	running  sync.WaitGroup
	closeErr error // how shutting went, once running is done

	mu       sync.Mutex
	prepared map[string]*sql.Stmt // guarded by mu; by text, closed with the pool
}

var _ store.Store = (*Store)(nil)

// Open opens the database in dir, makes it if there is none, and brings its
// schema forward. It refuses a directory that another process uses with
// ErrLocked, a database of a newer version with store.ErrNewer, and with ErrCorrupt one with
// corrupt pages outside the log of events, or whose write-ahead log has lost a commit.
func Open(ctx context.Context, dir string, o Options) (_ *Store, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open database in %s: %w", dir, asCorrupt(err))
		}
	}()
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// SQLite sees to what is in the directory, not to the directory itself.
	if err := atomicfile.SyncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}

	var undo []func() error
	defer func() {
		for len(undo) > 0 {
			err = errors.Join(err, undo[len(undo)-1]())
			undo = undo[:len(undo)-1]
		}
	}()
	held, err := lock(ctx, dir)
	if err != nil {
		return nil, err
	}
	undo = append(undo, held.Close)

	if err := finishReplace(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, file)
	// A program that has the log open may begin it anew while it is read.
	if err := waitForReaders(ctx, path+"-shm"); err != nil {
		return nil, err
	}
	if err := cmp.Or(refuseHole(path), refuseShort(path)); err != nil {
		return nil, err
	}
	if err := resync(ctx, path); err != nil {
		return nil, err
	}
	c, err := dial(path)
	if err != nil {
		return nil, err
	}
	undo = append(undo, c.Close)
	if err := c.truncateLog(context.WithoutCancel(ctx), path); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := c.migrate(context.WithoutCancel(ctx), o.Logger); err != nil {
		return nil, err
	}
	if err := c.intact(ctx); err != nil {
		return nil, err
	}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if c.files, err = statFiles(path); err != nil {
		return nil, err
	}
	// SQLite syncs the names of its files, and does not hear if that fails.
	if err := atomicfile.SyncDir(dir); err != nil {
		return nil, err
	}

	pool, err := sql.Open("sqlite", dsn(path, url.Values{"mode": {"ro"}}, "busy_timeout(5000)", "query_only(1)"))
	if err != nil {
		return nil, err
	}
	undo = append(undo, pool.Close)
	readers := o.Readers
	if readers == 0 {
		readers = 4
	}
	pool.SetMaxOpenConns(readers)
	pool.SetMaxIdleConns(readers)
	if err := pool.PingContext(ctx); err != nil {
		return nil, err
	}

	undo = nil // ours to keep now
	s := &Store{writer: newWriter(c), pool: pool, lock: held, removed: make(chan struct{}, 1), prepared: make(map[string]*sql.Stmt)}
	ctx = context.WithoutCancel(ctx)
	s.running.Go(func() {
		s.writer.Run(ctx)
		s.closeErr = s.shutDown(ctx)
	})
	s.running.Go(func() { s.sweep(ctx) })
	return s, nil
}

// Failed yields an error when the disk failed a commit or a checkpoint, or the database's
// files were removed or replaced. From then on nothing is written and no write is
// acknowledged; only a new process, which writes what it finds once more before it trusts
// it, can go on.
func (s *Store) Failed() <-chan error { return s.writer.failed }

// Check writes a row and reports whether that worked.
func (s *Store) Check(ctx context.Context) error {
	err := s.writer.Write(ctx, &job{do: func(ctx context.Context, c *conn) error {
		_, err := c.exec(ctx, check)
		return err
	}})
	if err != nil {
		return fmt.Errorf("check database: %w", err)
	}
	return nil
}

// Close writes what is queued, checkpoints the write-ahead log and unlocks the data
// directory.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.writer.closing) })
	s.running.Wait()
	return s.closeErr
}

func (s *Store) shutDown(ctx context.Context) error {
	// Readers go first: the log can be emptied only when there are none.
	err := s.pool.Close()
	if s.writer.failure != nil {
		// Closing would move the log of a disk that failed, or remove it. The next
		// process resyncs it instead.
		return errors.Join(err, s.writer.failure)
	}
	_, moved := s.writer.conn.checkpoint(ctx, "TRUNCATE")
	if code(moved) == lib.SQLITE_IOERR {
		return fmt.Errorf("close database: %w", errors.Join(err, moved)) // as above
	}
	if err = errors.Join(err, moved, s.writer.conn.Close(), s.lock.Close()); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}
