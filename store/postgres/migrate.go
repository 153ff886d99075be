package postgres

import (
	"context"
	"embed"
	"fmt"
	"log/slog"

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
func migrate(ctx context.Context, c *pgx.Conn, log *slog.Logger) error {
	all, err := store.Steps(migrations)
	if err != nil {
		return err
	}
	for from := -1; ; {
		at, more, err := forward(ctx, c, all)
		if err != nil {
			return err
		}
		if from < 0 {
			from = at
		}
		if !more {
			return sayNotes(ctx, c, log, from)
		}
		crash.At(crash.MigrateStepped)
	}
}

// sayNotes tells what the steps that were taken after a version found. A server that
// was started at the same time may tell it, too.
func sayNotes(ctx context.Context, c *pgx.Conn, log *slog.Logger, after int) error {
	rows, err := c.Query(ctx, `SELECT version, note FROM schema_notes WHERE version > $1 ORDER BY version`, after)
	if err != nil {
		return err
	}
	var step int
	var note string
	_, err = pgx.ForEachRow(rows, []any{&step, &note}, func() error {
		log.WarnContext(ctx, "database brought forward", "step", step, "note", note)
		return nil
	})
	return err
}

// forward does the next step after the one the schema is at, and reports whether there
// was one.
func forward(ctx context.Context, c *pgx.Conn, all []store.Step) (at int, more bool, err error) {
	tx, err := c.Begin(ctx)
	if err != nil {
		return at, false, err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
	}()
	// The others may be at a step that takes long.
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = 0`); err != nil {
		return at, false, err
	}
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
		return at, false, err
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(turnstile)); err != nil {
		return at, false, err
	}
	var begun bool
	at, begun, err = version(ctx, tx)
	if err != nil {
		return at, false, err
	}
	if !begun {
		if _, err := tx.Exec(ctx, `CREATE TABLE schema_steps (version integer PRIMARY KEY, name text NOT NULL)`); err != nil {
			return at, false, err
		}
	}
	missing, err := store.Missing(all, at)
	if err != nil {
		return at, false, err
	}
	if len(missing) == 0 {
		return at, false, tx.Rollback(ctx)
	}
	s := missing[0]
	if _, err := tx.Exec(ctx, s.Text); err != nil {
		return at, false, fmt.Errorf("migrate to step %d, %s: %w", s.Version, s.Name, err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO schema_steps (version, name) VALUES ($1, $2)`, s.Version, s.Name); err != nil {
		return at, false, err
	}
	crash.At(crash.MigrateBegun)
	return at, true, tx.Commit(ctx)
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
