package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	lib "modernc.org/sqlite/lib"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// copyDir is the directory, in a data directory, where a copy of a corrupt database is
// repaired before it is read. The original stays marked as corrupt until it is replaced.
const copyDir = file + "-copy"

// openSource opens the corrupt database as one file without a log.
func (s *Salvage) openSource(ctx context.Context, path string) error {
	hole := refuseHole(path)
	if hole != nil && !errors.Is(hole, ErrCorrupt) {
		return hole
	}
	missing, err := missingBytes(path)
	if err != nil {
		return err
	}
	var lost holes
	if hole != nil || missing > 0 {
		if path, lost, err = s.copySource(path, hole != nil); err != nil {
			return err
		}
	}
	if missing > 0 {
		s.lose("the database: its file is %d bytes short", missing)
		if err := extend(path, missing); err != nil {
			return err
		}
	}
	if err := moveLog(ctx, path); err != nil {
		return err
	}
	// It is not written to, and its log is empty.
	if s.from, err = sql.Open("sqlite", dsn(path, url.Values{"mode": {"ro"}, "immutable": {"1"}})); err != nil {
		return err
	}
	return s.loseHoles(ctx, lost)
}

// copySource copies the database, with a log without holes.
func (s *Salvage) copySource(path string, hole bool) (copied string, lost holes, err error) {
	made := filepath.Join(s.dir, copyDir)
	if err := errors.Join(os.RemoveAll(made), os.Mkdir(made, 0o700)); err != nil {
		return "", lost, err
	}
	copied = filepath.Join(made, file)
	if err := copyFile(path, copied); err != nil {
		return "", lost, err
	}
	if !hole {
		err := copyFile(path+"-wal", copied+"-wal")
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return copied, lost, err
	}
	s.hole = true
	r, log, err := openLog(path)
	if err != nil {
		return "", lost, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	out, err := os.OpenFile(copied+"-wal", os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return "", lost, err
	}
	lost, err = r.mendTo(out)
	return copied, lost, errors.Join(err, out.Close())
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// extend makes a file longer, by zeros: no page of SQLite's is like them.
func extend(path string, by int64) error {
	at, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, at.Size()+by)
}

// loseHoles notes what was on the pages that are as they were before.
func (s *Salvage) loseHoles(ctx context.Context, lost holes) error {
	const log = "the write-ahead log is not what was written; "
	if lost.unknown {
		s.lose(log + "of what was committed last some may be missing, of sessions and documents (agents, environments) alike")
	}
	if len(lost.pages) == 0 {
		return nil
	}
	var numbers []string
	for page := range lost.pages {
		numbers = append(numbers, fmt.Sprint(page))
	}
	var tables []string
	err := s.read(ctx, 1, func(row []driver.Value) error {
		if name, ok := row[0].(string); ok && !derivedTable(name) {
			tables = append(tables, name)
		}
		return nil
	}, `SELECT DISTINCT coalesce(s.tbl_name, d.name) FROM dbstat d LEFT JOIN sqlite_schema s ON s.name = d.name
		WHERE d.pageno IN (`+strings.Join(numbers, ", ")+`) ORDER BY 1`)
	switch {
	case err != nil && code(err) != lib.SQLITE_CORRUPT:
		return err
	case err != nil:
		s.lose(log+"%d pages are not as they were written last, and it cannot be told of what", len(numbers))
	case len(tables) > 0:
		s.lose(log+"%d pages of %s are not as they were written last", len(numbers), strings.Join(tables, ", "))
	}
	return nil
}

// derivedTable reports whether what a table has is derived, or made again when it is missed.
func derivedTable(name string) bool {
	return name == "states" || name == "checks" || slices.ContainsFunc(salvaged, func(t table) bool { return t.derived && t.name == name })
}

// readyDir is the directory, in a data directory, of a new database that is going to
// replace a corrupt one.
const readyDir = file + "-ready"

// finishReplace puts a database that is ready in its place, without the log of the one
// before. After a kill in between, the next process that opens it does the rest.
func finishReplace(dir string) error {
	ready, path := filepath.Join(dir, readyDir), filepath.Join(dir, file)
	if _, err := os.Stat(ready); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(ready, file)); err == nil {
		for _, of := range []string{"-wal", "-shm"} {
			if err := os.Remove(path + of); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := atomicfile.SyncDir(dir); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(ready, file), path); err != nil {
			return err
		}
		if err := atomicfile.SyncDir(dir); err != nil {
			return err
		}
	}
	return os.RemoveAll(ready)
}
