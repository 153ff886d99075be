package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/store"
)

// Salvage is a new database made of what can be read of a corrupt one, with a row for each
// session of which there is a log. Rows that are derived from the logs may be missing until
// the caller has rebuilt them; then Replace puts it in the place of the corrupt one, which
// stays as it is until then.
type Salvage struct {
	*Store
	// Lost says what could not be read, for people.
	Lost []string
	// Kept is where the corrupt database is after Replace.
	Kept string

	dir  string
	hole bool // in the log, which is kept as well
	from *sql.DB
	lock *os.File
}

// salvageDir is the directory in a data directory in which a new database is made.
const salvageDir = file + "-rebuilt"

// NewSalvage reads what it can of the database in dir. It refuses a directory that another
// process uses with ErrLocked.
func NewSalvage(ctx context.Context, dir string, o Options) (_ *Salvage, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	s := &Salvage{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("salvage database in %s: %w", dir, err), s.Close())
		}
	}()
	if s.lock, err = lock(ctx, dir); err != nil {
		return s, err
	}
	if err := finishReplace(dir); err != nil {
		return s, err
	}
	if err := s.openSource(ctx, filepath.Join(dir, file)); err != nil {
		return s, err
	}
	if err := os.RemoveAll(filepath.Join(dir, salvageDir)); err != nil {
		return s, err
	}
	if s.Store, err = Open(ctx, filepath.Join(dir, salvageDir), o); err != nil {
		return s, err
	}
	if err := s.knownSchema(ctx); err != nil {
		return s, err
	}
	for _, t := range salvaged {
		if err := s.copyTable(ctx, t); err != nil {
			return s, fmt.Errorf("copy %s: %w", t.name, err)
		}
	}
	if err := s.loseDocuments(ctx); err != nil {
		return s, fmt.Errorf("look for lost documents: %w", err)
	}
	if err := s.copySessions(ctx); err != nil {
		return s, err
	}
	return s, s.nameAnyBlob(ctx)
}

// moveLog moves all of the write-ahead log into the database, so that one file holds all.
func moveLog(ctx context.Context, path string) error {
	if err := resync(ctx, path); err != nil {
		return err
	}
	c, err := dial(path)
	if err != nil {
		return err
	}
	left, err := c.checkpoint(ctx, "TRUNCATE")
	if err == nil && left != 0 {
		err = fmt.Errorf("%d pages are left in its log", left)
	}
	return errors.Join(err, c.Close())
}

// nameAnyBlob keeps every blob for the sessions that cannot be laid out now: a snapshot whose
// row is lost names blobs that are wanted when the log can be read again.
func (s *Salvage) nameAnyBlob(ctx context.Context) error {
	_, err := s.put(ctx, `INSERT INTO names (session, digest, n) SELECT key, ?, 1 FROM sessions WHERE true ON CONFLICT DO NOTHING`, [][]driver.Value{{anyBlob}})
	return err
}

// knownSchema refuses a database of a newer version: it may have what this program would leave
// behind. One of an older version is copied by the columns it has. What steps since have added
// beside them follows from the logs, or begins empty.
func (s *Salvage) knownSchema(ctx context.Context) error {
	var was, is int
	err := s.from.QueryRowContext(ctx, `SELECT max(version) FROM schema_steps`).Scan(&was)
	if err != nil {
		return asUnknown(err)
	}
	if err := s.pool.QueryRowContext(ctx, `SELECT max(version) FROM schema_steps`).Scan(&is); err != nil {
		return err
	}
	if was > is {
		return fmt.Errorf("its schema is at step %d and this program's at step %d; use the version that wrote it: %w", was, is, store.ErrNewer)
	}
	return nil
}

// Replace puts the new database in the place of the corrupt one, which is kept beside it, and
// with it its log if that has a hole.
func (s *Salvage) Replace() error {
	path := filepath.Join(s.dir, file)
	err := s.Store.Close()
	s.Store = nil
	if err != nil {
		return errors.Join(err, s.Close())
	}
	at := time.Now().UTC().Format("20060102T150405.000Z")
	s.Kept = path + "-corrupt-" + at
	err = os.Link(path, s.Kept)
	if err == nil && s.hole { // under a name that SQLite does not take for the log of the old database
		err = os.Link(path+"-wal", path+"-log-corrupt-"+at)
	}
	if err == nil {
		err = atomicfile.SyncDir(s.dir)
	}
	if err == nil {
		err = os.Rename(filepath.Join(s.dir, salvageDir), filepath.Join(s.dir, readyDir))
	}
	if err == nil {
		err = atomicfile.SyncDir(s.dir)
	}
	if err == nil {
		err = finishReplace(s.dir)
	}
	return errors.Join(err, s.Close())
}

// Close gives the data directory back.
func (s *Salvage) Close() error {
	var errs []error
	if s.Store != nil {
		errs = append(errs, s.Store.Close())
		s.Store = nil
	}
	if s.from != nil {
		errs = append(errs, s.from.Close())
		s.from = nil
	}
	if s.lock != nil {
		errs = append(errs, os.RemoveAll(filepath.Join(s.dir, salvageDir)), os.RemoveAll(filepath.Join(s.dir, copyDir)), s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}
