package postgres

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock for changing the schema and for joining.
const migrationLock = 0x646f726d6f757365

// migrate brings the schema forward. Each step is one transaction together with its row in
// schema_steps, so that a kill anywhere leaves whole steps. Servers that start at once take
// turns: the lock ends with each transaction, and the server that gets it next reads the
// step again.
func migrate(ctx context.Context, c *pgx.Conn, all []store.Step, log *slog.Logger) error {
	for from := -1; ; {
		at, more, err := forward(ctx, c, all)
		if err != nil {
			return err
		}
		if from < 0 {
			from = at
		}
		if !more {
			return logNotes(ctx, c, log, from)
		}
		crash.At(crash.MigrateStepped)
	}
}

// logNotes logs what the steps that were taken after a version found. A server that was
// started at the same time may log it, too.
func logNotes(ctx context.Context, c *pgx.Conn, log *slog.Logger, after int) error {
	rows, err := c.Query(ctx, `SELECT version, note FROM schema_notes WHERE version > $1 ORDER BY version`, after)
	if err != nil {
		return err
	}
	var step int
	var note string
	_, err = pgx.ForEachRow(rows, []any{&step, &note}, func() error {
		log.WarnContext(ctx, "database schema migrated", "step", step, "note", note)
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
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
		return at, false, err
	}
	have, begun, err := steps(ctx, tx)
	if err != nil {
		return at, false, err
	}
	if at = have.At; !begun {
		if _, err := tx.Exec(ctx, `CREATE TABLE schema_steps (version integer PRIMARY KEY, name text NOT NULL)`); err != nil {
			return at, false, err
		}
	}
	missing, err := store.Missing(all, have)
	if err != nil {
		return at, false, err
	}
	if len(missing) == 0 {
		return at, false, tx.Rollback(ctx)
	}
	s := missing[0]
	if err := step(ctx, tx, s); err != nil {
		return at, false, fmt.Errorf("migrate to step %d, %s: %w", s.Version, s.Name, err)
	}
	crash.At(crash.MigrateBegun)
	return at, true, tx.Commit(ctx)
}

// step takes a step and notes that it was taken.
func step(ctx context.Context, tx pgx.Tx, s store.Step) error {
	if s.Breaking() {
		if err := fenceOlderServers(ctx, tx); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, s.Text); err != nil {
		return err
	}
	if s.Least == 0 { // there is no place yet to say what it needs
		_, err := tx.Exec(ctx, `INSERT INTO schema_steps (version, name) VALUES ($1, $2)`, s.Version, s.Name)
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO schema_steps (version, name, least) VALUES ($1, $2, $3)`, s.Version, s.Name, s.Least)
	return err
}

// fenceOlderServers sees to it that no server which does not know the next step writes after it.
//
// A server that has a lease has brought the schema as far as it knows before it joined,
// so that none of those that live knows a step that is missing: they are named, and the
// step is refused until they have stopped. One that has opened the database and has not
// joined yet is refused by Join, which takes its turn with us. One that was paused has no
// lease any more, and may still be about to send what it had decided: every session that
// anybody has loaded gets the next epoch, so that the database refuses that. So no server
// needs to notice later that it may not write.
func fenceOlderServers(ctx context.Context, tx pgx.Tx) error {
	var shared bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass('servers') IS NOT NULL`).Scan(&shared); err != nil || !shared {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT name FROM servers WHERE `+lives+` ORDER BY incarnation`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("servers of an older version cannot go on after it; stop %s first, and wait for the lease of one that was killed: %w",
			strings.Join(names, ", "), dormouse.ErrConflict)
	}
	_, err = tx.Exec(ctx, `UPDATE sessions SET epoch = epoch + 1, server = NULL, taken = NULL WHERE server IS NOT NULL`)
	return err
}

// steps reads which steps the database has taken. Before the first there is no table for
// them, and before the ninth no column for what a step needs.
func steps(ctx context.Context, a querier) (have store.Schema, begun bool, err error) {
	if err := a.QueryRow(ctx, `SELECT to_regclass('schema_steps') IS NOT NULL`).Scan(&begun); err != nil || !begun {
		return have, false, err
	}
	var says bool
	if err := a.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_attribute
		WHERE attrelid = to_regclass('schema_steps') AND attname = 'least' AND NOT attisdropped)`).Scan(&says); err != nil {
		return have, false, err
	}
	text := `SELECT coalesce(max(version), 0), coalesce(max(version), 0) FROM schema_steps`
	if says {
		text = `SELECT coalesce(max(version), 0), coalesce(max(coalesce(nullif(least, 0), version)), 0) FROM schema_steps`
	}
	err = a.QueryRow(ctx, text).Scan(&have.At, &have.Least)
	return have, true, err
}
