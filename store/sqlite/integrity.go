package sqlite

import (
	"cmp"
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
	"strings"

	lib "modernc.org/sqlite/lib"
)

// ErrCorrupt means that pages of the database are not what was written. A row that
// cannot be found because of that must not be taken for one that is not there.
var ErrCorrupt = errors.New(`the database is corrupt; stop the server and run "dormouse store rebuild", which saves what can be read and derives the rest from the logs`)

// errUnknown means that not even its tables can be told.
var errUnknown = errors.New("what the database says of itself cannot be read, and nothing can be without it; put a copy of it in its place, or import an archive into an empty directory")

// checksAtOpen are what a database must pass before a row that is not found counts as
// missing. Sessions are compared with their indexes, because the files of a session that
// is not found are removed. Of the log only the page is checked that every append writes:
// its rows have checksums and sequence numbers, and reading all of it may take too long.
var checksAtOpen = []string{
	"integrity_check(sessions)", "integrity_check(documents)", "integrity_check(document_versions)", "integrity_check(removed)",
	"quick_check(labels)", "quick_check(prompts)", "quick_check(ops)", "quick_check(chunks)",
	"quick_check(states)", "quick_check(points)", "quick_check(names)", "quick_check(client_ids)", "quick_check(checks)",
}

// intact refuses a database with corrupt pages outside the log.
func (c *conn) intact(ctx context.Context) error {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return errors.New("driver cannot query")
	}
	if _, err := c.numbers(ctx, `SELECT coalesce(max(rowid), 0) FROM events`, 1); err != nil {
		return fmt.Errorf("read the end of the log: %w", err)
	}
	for _, check := range checksAtOpen {
		rows, err := q.QueryContext(ctx, "PRAGMA "+check, nil)
		if err != nil {
			return err
		}
		dest := make([]driver.Value, 1)
		for err = rows.Next(dest); err == nil; err = rows.Next(dest) {
			if found, _ := dest[0].(string); concerns(found) {
				err = corrupt(check, found)
				break
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err := errors.Join(err, rows.Close()); err != nil {
			return err
		}
	}
	return nil
}

// concerns reports whether a line of a check tells of a page. Values that should not be in
// their columns concern their row alone, which is derived.
func concerns(found string) bool {
	return found != "ok" && !strings.Contains(found, " value in ") && !strings.HasPrefix(found, "CHECK constraint failed")
}

func corrupt(check, found string) error {
	return fmt.Errorf("%w (%s: %s)", ErrCorrupt, check, strings.Join(strings.Fields(found), " "))
}

// Intact checks all of the database in dir, the log included, and returns ErrCorrupt if a
// page is not what was written, as far as SQLite can tell, or if its write-ahead log has
// lost a commit. The database must not be open.
func Intact(ctx context.Context, dir string) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, file)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := cmp.Or(refuseHole(path), refuseShort(path)); err != nil {
		return fmt.Errorf("check database in %s: %w", dir, err)
	}
	db, err := sql.Open("sqlite", dsn(path, url.Values{"mode": {"ro"}}, "busy_timeout(5000)", "query_only(1)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, "PRAGMA integrity_check")
	if err != nil {
		return fmt.Errorf("check database in %s: %w", dir, asCorrupt(err))
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var found string
		if err := rows.Scan(&found); err != nil {
			return err
		}
		if concerns(found) {
			return fmt.Errorf("check database in %s: %w", dir, corrupt("integrity_check", found))
		}
	}
	return asCorrupt(rows.Err())
}

// asCorrupt makes SQLite's word for a corrupt page ErrCorrupt, which says what can be done.
func asCorrupt(err error) error {
	if code(err) == lib.SQLITE_CORRUPT && !errors.Is(err, ErrCorrupt) && !errors.Is(err, errUnknown) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// asUnknown makes an error of reading the schema errUnknown, if that cannot be read.
func asUnknown(err error) error {
	if c := code(err); (c == lib.SQLITE_CORRUPT || c == lib.SQLITE_NOTADB) && !errors.Is(err, errUnknown) {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return err
}
