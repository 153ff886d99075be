package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse/store"
)

// Schema returns the step that the schema of the database in dir is at, 0 if there is none
// yet, and the newest step that this program knows. A database that this program may not
// use is store.ErrNewer. It changes nothing and does not wait for locks.
func Schema(ctx context.Context, dir string) (at, newest int, err error) {
	defer func() {
		if err != nil {
			// A server may be writing the log: only if nothing can be read it is looked into.
			path := filepath.Join(dir, file)
			if found := cmp.Or(refuseHole(path), refuseShort(path)); errors.Is(found, ErrCorrupt) && !errors.Is(err, store.ErrNewer) {
				err = found
			}
			err = fmt.Errorf("read schema of the database in %s: %w", dir, asUnknown(err))
		}
	}()
	if dir, err = filepath.Abs(dir); err != nil {
		return 0, 0, err
	}
	all, err := store.Steps(migrations)
	if err != nil {
		return 0, 0, err
	}
	path := filepath.Join(dir, file)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, len(all), nil
	}
	db, err := sql.Open("sqlite", dsn(path, url.Values{"mode": {"ro"}}, "busy_timeout(5000)", "query_only(1)"))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var begun bool // a process that was killed at once leaves an empty file
	if err := db.QueryRowContext(ctx, `SELECT count(*) > 0 FROM sqlite_master WHERE name = 'schema_steps'`).Scan(&begun); err != nil || !begun {
		return 0, len(all), err
	}
	var says int
	if err := db.QueryRowContext(ctx, hasLeast).Scan(&says); err != nil {
		return 0, 0, err
	}
	text := plainSteps
	if says > 0 {
		text = leastSteps
	}
	var have store.Schema
	if err := db.QueryRowContext(ctx, text).Scan(&have.At, &have.Least); err != nil {
		return 0, 0, err
	}
	_, err = store.Missing(all, have)
	return have.At, len(all), err
}
