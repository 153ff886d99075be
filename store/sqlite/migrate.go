package sqlite

import (
	"context"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

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

// migrate brings the schema forward. Each step is one transaction together with
// its row in schema_steps, so that a kill anywhere leaves whole steps.
func (c *conn) migrate(ctx context.Context) error {
	all, err := steps()
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
	if at > len(all) {
		return fmt.Errorf("schema is at step %d and this program knows %d; use the program that wrote it or a newer one: %w", at, len(all), ErrNewer)
	}
	for _, s := range all[at:] {
		if err := c.step(ctx, s); err != nil {
			return fmt.Errorf("migrate to step %d, %s: %w", s.version, s.name, err)
		}
		crash.At(crash.MigrateStepped)
	}
	return nil
}

func (c *conn) step(ctx context.Context, s step) error {
	if err := c.script(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := c.script(ctx, s.text)
	if err == nil {
		err = c.script(ctx, fmt.Sprintf("INSERT INTO schema_steps (version, name) VALUES (%d, '%s')", s.version, s.name))
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
