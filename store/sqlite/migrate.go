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
		return asUnknown(err)
	}
	have, err := c.schema(ctx)
	if err != nil {
		return asUnknown(err)
	}
	missing, err := store.Missing(all, have)
	if err != nil {
		return err
	}
	for _, s := range missing {
		if err := c.step(ctx, s); err != nil {
			return fmt.Errorf("migrate to step %d, %s: %w", s.Version, s.Name, err)
		}
		crash.At(crash.MigrateStepped)
	}
	return c.logNotes(ctx, log, missing)
}

// logNotes logs what the steps that were just taken found.
func (c *conn) logNotes(ctx context.Context, log *slog.Logger, taken []store.Step) error {
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
		log.WarnContext(ctx, "database schema migrated", "step", dest[0], "note", dest[1])
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
		err = c.script(ctx, record(s))
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

// record notes that a step was taken. The first steps have no place to say what they
// need.
func record(s store.Step) string {
	if s.Least == 0 {
		return fmt.Sprintf("INSERT INTO schema_steps (version, name) VALUES (%d, '%s')", s.Version, s.Name)
	}
	return fmt.Sprintf("INSERT INTO schema_steps (version, name, least) VALUES (%d, '%s', %d)", s.Version, s.Name, s.Least)
}

// What a database says of its steps, without and with the column least.
const (
	hasLeast   = `SELECT count(*) FROM pragma_table_info('schema_steps') WHERE name = 'least'`
	plainSteps = `SELECT coalesce(max(version), 0), coalesce(max(version), 0) FROM schema_steps`
	leastSteps = `SELECT coalesce(max(version), 0), coalesce(max(coalesce(nullif(least, 0), version)), 0) FROM schema_steps`
)

// schema is what the database says of its steps.
func (c *conn) schema(ctx context.Context) (store.Schema, error) {
	says, err := c.numbers(ctx, hasLeast, 1)
	if err != nil {
		return store.Schema{}, err
	}
	text := plainSteps
	if says[0] > 0 {
		text = leastSteps
	}
	steps, err := c.numbers(ctx, text, 2)
	if err != nil {
		return store.Schema{}, err
	}
	return store.Schema{At: steps[0], Least: steps[1]}, nil
}

// numbers asks for a row of n integers.
func (c *conn) numbers(ctx context.Context, text string, n int) ([]int, error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, errors.New("driver cannot query")
	}
	rows, err := q.QueryContext(ctx, text, nil)
	if err != nil {
		return nil, err
	}
	dest := make([]driver.Value, n)
	if err := errors.Join(rows.Next(dest), rows.Close()); err != nil {
		return nil, err
	}
	found := make([]int, n)
	for i, v := range dest {
		number, err := integer(v)
		if err != nil {
			return nil, err
		}
		found[i] = int(number)
	}
	return found, nil
}
