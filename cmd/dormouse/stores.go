//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/postgres"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// openStore opens the database that --store names, SQLite in the data directory
// if it names none. It is the only place that knows which there are.
func openStore(ctx context.Context, data string, d dsn, log *slog.Logger) (store.Store, error) {
	if d.value != "" {
		s, err := postgres.Open(ctx, d.value, postgres.Options{Logger: log})
		if err != nil {
			return nil, d.hide(err)
		}
		return s, nil
	}
	s, err := sqlite.Open(ctx, data, sqlite.Options{Logger: log})
	if errors.Is(err, sqlite.ErrLocked) {
		return nil, fmt.Errorf("%w; another server uses it: stop that one or choose another directory with --data", err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// schemaOf returns the step that the schema of that database is at, 0 if there is
// none yet, and the one that this program brings it to.
func schemaOf(ctx context.Context, data string, d dsn) (at, newest int, err error) {
	if d.value != "" {
		at, newest, err = postgres.Schema(ctx, d.value)
		return at, newest, d.hide(err)
	}
	if _, err := checkEntries(data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err // before anything of it is read
	}
	return sqlite.Schema(ctx, data)
}

// checkPages reports whether pages of that database are corrupt, with sqlite.ErrCorrupt if
// they are. PostgreSQL looks after its own.
func checkPages(ctx context.Context, data string, d dsn) error {
	if d.value != "" {
		return nil
	}
	return sqlite.Intact(ctx, data)
}

// failing is implemented by stores that can fail for good.
type failing interface{ Failed() <-chan error }

// failure receives the error of a store that has failed for good, if it ever does.
func failure(s store.Store) <-chan error {
	if f, ok := s.(failing); ok {
		return f.Failed()
	}
	return nil
}
