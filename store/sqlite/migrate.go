package sqlite

import (
	"context"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema forward. Each step is one transaction together with
// its row in schema_steps, so that a kill anywhere leaves whole steps.
func (c *conn) migrate(ctx context.Context, log *slog.Logger) error {
	all, err := store.Steps(migrations)
	if err != nil {
		return err
	}
	if err := c.script(ctx, `CREATE TABLE IF NOT EXISTS schema_steps (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT`); err != nil {
		return err
	}
	at, err := c.version(ctx)
	if err != nil {
		return err
	}
	missing, err := store.Missing(all, at)
	if err != nil {
		return err
	}
	for _, s := range missing {
		if err := c.step(ctx, s); err != nil {
			return fmt.Errorf("migrate to step %d, %s: %w", s.Version, s.Name, err)
		}
		crash.At(crash.MigrateStepped)
	}
	return c.sayNotes(ctx, log, missing)
}

// sayNotes tells what the steps that were just taken found.
func (c *conn) sayNotes(ctx context.Context, log *slog.Logger, taken []store.Step) error {
	if len(taken) == 0 {
		return nil
	}
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return errors.New("driver cannot query")
	}
	from := driver.NamedValue{Ordinal: 1, Value: int64(taken[0].Version)}
	rows, err := q.QueryContext(ctx, "SELECT version, note FROM schema_notes WHERE version >= ? ORDER BY version", []driver.NamedValue{from})
	if err != nil {
		return err
	}
	dest := make([]driver.Value, 2)
	for err = rows.Next(dest); err == nil; err = rows.Next(dest) {
		log.WarnContext(ctx, "database brought forward", "step", dest[0], "note", dest[1])
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, rows.Close())
}

func (c *conn) step(ctx context.Context, s store.Step) error {
	if err := c.script(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := c.script(ctx, s.Text)
	if err == nil {
		err = c.script(ctx, fmt.Sprintf("INSERT INTO schema_steps (version, name) VALUES (%d, '%s')", s.Version, s.Name))
	}
	if err == nil {
		crash.At(crash.MigrateBegun)
		err = c.script(ctx, "COMMIT")
	}
	if err != nil {
		// A failed commit may have ended the transaction already.
		_ = c.script(ctx, "ROLLBACK")
	}
	return err
}

// version is the number of the newest step the database has.
func (c *conn) version(ctx context.Context) (int, error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return 0, errors.New("driver cannot query")
	}
	rows, err := q.QueryContext(ctx, "SELECT coalesce(max(version), 0) FROM schema_steps", nil)
	if err != nil {
		return 0, err
	}
	dest := make([]driver.Value, 1)
	if err := errors.Join(rows.Next(dest), rows.Close()); err != nil {
		return 0, err
	}
	v, err := integer(dest[0])
	return int(v), err
}
