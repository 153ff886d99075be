package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse/internal/crash"
)

// ErrNewer means that a newer program has used the database.
var ErrNewer = errors.New("database is of a newer version")

//go:embed migrations/*.sql
var migrations embed.FS

// step is one change of the schema. Steps are added, never edited.
type step struct {
	version int
	name    string
	text    string
}

func steps() ([]step, error) {
	entries, err := migrations.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	var all []step
	for i, e := range entries {
		number, name, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s is not number %d", e.Name(), i+1)
		}
		text, err := migrations.ReadFile(path.Join("migrations", e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, step{version, name, string(text)})
	}
	return all, nil
}

// turnstile is the advisory lock of those who change the schema or join.
const turnstile = 0x646f726d6f757365

// migrate brings the schema forward. Each step is one transaction together with
// its row in schema_steps, so that a kill anywhere leaves whole steps. Servers
// that start at once take turns: the lock ends with each transaction, and who
// gets it next looks again.
func migrate(ctx context.Context, c *pgx.Conn) error {
	all, err := steps()
	if err != nil {
		return err
	}
	for {
		more, err := forward(ctx, c, all)
		if err != nil {
			return err
		}
		if !more {
			return nil
		}
		crash.At(crash.MigrateStepped)
	}
}

// forward does the next step and reports whether there was one.
func forward(ctx context.Context, c *pgx.Conn, all []step) (more bool, err error) {
	tx, err := c.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
	}()
	// The others may be at a step that takes long.
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = 0`); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(turnstile)); err != nil {
		return false, err
	}
	at, begun, err := version(ctx, tx)
	if err != nil {
		return false, err
	}
	if !begun {
		if _, err := tx.Exec(ctx, `CREATE TABLE schema_steps (version integer PRIMARY KEY, name text NOT NULL)`); err != nil {
			return false, err
		}
	}
	if at > len(all) {
		return false, fmt.Errorf("schema is at step %d and this program knows %d; use the program that wrote it or a newer one: %w", at, len(all), ErrNewer)
	}
	if at == len(all) {
		return false, tx.Rollback(ctx)
	}
	s := all[at]
	if _, err := tx.Exec(ctx, s.text); err != nil {
		return false, fmt.Errorf("migrate to step %d, %s: %w", s.version, s.name, err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO schema_steps (version, name) VALUES ($1, $2)`, s.version, s.name); err != nil {
		return false, err
	}
	crash.At(crash.MigrateBegun)
	return true, tx.Commit(ctx)
}

// version is the number of the newest step the database has. Before the first
// there is nothing to keep it in.
func version(ctx context.Context, a asker) (at int, begun bool, err error) {
	if err := a.QueryRow(ctx, `SELECT to_regclass('schema_steps') IS NOT NULL`).Scan(&begun); err != nil || !begun {
		return 0, false, err
	}
	err = a.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM schema_steps`).Scan(&at)
	return at, true, err
}
