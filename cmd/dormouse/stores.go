package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/postgres"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// openStore opens the database that --store names, SQLite in the data directory
// if it names none. It is the only place that knows which there are.
func openStore(ctx context.Context, data string, d dsn, log *slog.Logger) (store.Store, error) {
	if d.value != "" {
		return postgres.Open(ctx, d.value, postgres.Options{Logger: log})
	}
	s, err := sqlite.Open(ctx, data, sqlite.Options{})
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
		return postgres.Schema(ctx, d.value)
	}
	return sqlite.Schema(ctx, data)
}

// failing is implemented by stores that can fail for good.
type failing interface{ Failed() <-chan error }

// failure is told why the store can promise nothing more, if it ever says so.
func failure(s store.Store) <-chan error {
	if f, ok := s.(failing); ok {
		return f.Failed()
	}
	return nil
}

// dsn is where a database is. It may hold a password and therefore does not
// print what it holds.
type dsn struct{ value string }

// String shows the database without its password, if that can be told from the
// rest.
func (d dsn) String() string {
	if d.value == "" {
		return ""
	}
	u, err := url.Parse(d.value)
	if err != nil || u.Scheme == "" || u.Opaque != "" {
		return "[secret]"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// GoString is String for who asks for the value of a field.
func (d dsn) GoString() string { return d.String() }

// LogValue is String for logs.
func (d dsn) LogValue() slog.Value { return slog.StringValue(d.String()) }

// storeFlag adds the flag that says where the database is.
func storeFlag(f *pflag.FlagSet, d *dsn) {
	f.Func("store", "`URL` of a PostgreSQL database, which several servers may share; SQLite in --data if not given", func(v string) error {
		*d = dsn{v} // whoever sets flags repeats what is refused here, so that check refuses it
		return nil
	})
}

// check refuses what names no database we know.
func (d dsn) check() error {
	if d.value == "" {
		return nil
	}
	if _, err := url.Parse(d.value); err != nil || !strings.HasPrefix(d.value, "postgres://") && !strings.HasPrefix(d.value, "postgresql://") {
		return usage("--store is not a URL such as postgres://dormouse@db.example/dormouse; leave it out for SQLite in --data")
	}
	return nil
}
