package sqlite

import (
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

// Schema returns the step that the schema of the database in dir is at, 0 if
// there is none yet, and the newest step that this program knows. It changes
// nothing and waits for nobody.
func Schema(ctx context.Context, dir string) (at, newest int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read schema of the database in %s: %w", dir, err)
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
	err = db.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM schema_steps`).Scan(&at)
	return at, len(all), err
}
