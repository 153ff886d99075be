package postgres

import (
	"context"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// turnstile is the advisory lock of those who change the schema or join.
const turnstile = 0x646f726d6f757365

// migrate brings the schema forward. Each step is one transaction together with
// its row in schema_steps, so that a kill anywhere leaves whole steps. Servers
// that start at once take turns: the lock ends with each transaction, and who
// gets it next looks again.
func migrate(ctx context.Context, c *pgx.Conn) error {
	all, err := store.Steps(migrations)
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
func forward(ctx context.Context, c *pgx.Conn, all []store.Step) (more bool, err error) {
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
	missing, err := store.Missing(all, at)
	if err != nil {
		return false, err
	}
	if len(missing) == 0 {
		return false, tx.Rollback(ctx)
	}
	s := missing[0]
	if _, err := tx.Exec(ctx, s.Text); err != nil {
		return false, fmt.Errorf("migrate to step %d, %s: %w", s.Version, s.Name, err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO schema_steps (version, name) VALUES ($1, $2)`, s.Version, s.Name); err != nil {
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
