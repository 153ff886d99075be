package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	lib "modernc.org/sqlite/lib"
)

// table is one whose rows are copied as they are.
type table struct {
	name string
	// order is by what a table is ordered that has no rowids.
	order string
	// derived says that its rows follow from the logs. They are copied for the sessions
	// whose logs cannot be read.
	derived bool
}

// salvaged are the tables that are copied, beside those of which sessions there are. The
// cached folds are left out: each is made again when it is missed.
var salvaged = []table{
	{name: "events"},
	{name: "documents"},
	{name: "document_versions"},
	{name: "chunks", order: "session"},
	{name: "labels", derived: true},
	{name: "prompts", derived: true},
	{name: "ops", derived: true},
	{name: "points", derived: true},
	{name: "names", order: "session", derived: true},
	{name: "client_ids", order: "session", derived: true},
}

// columns are the names of a table's columns, of those that the corrupt database has; none if
// it is older than the table.
func (s *Salvage) columns(ctx context.Context, table string) ([]string, error) {
	const query = `SELECT name FROM pragma_table_info(?) ORDER BY cid`
	columns, err := list(ctx, s.Store, scan[string], query, table)
	if err != nil {
		return nil, err
	}
	had := make(map[string]bool)
	err = s.read(ctx, 1, func(row []driver.Value) error {
		if name, ok := row[0].(string); ok {
			had[name] = true
		}
		return nil
	}, query, table)
	return slices.DeleteFunc(columns, func(name string) bool { return !had[name] }), asUnknown(err)
}

// insertInto is the statement that inserts a row.
func insertInto(table string, columns []string) string {
	return `INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `) VALUES (?` + strings.Repeat(`, ?`, len(columns)-1) + `)`
}

// copyTable copies the rows of a table that can be read.
func (s *Salvage) copyTable(ctx context.Context, t table) error {
	columns, err := s.columns(ctx, t.name)
	if err != nil || len(columns) == 0 {
		return err
	}
	refused := 0
	var batch [][]driver.Value
	flush := func() error {
		n, err := s.put(ctx, insertInto(t.name, columns), batch)
		refused, batch = refused+n, nil
		return err
	}
	add := func(row []driver.Value) error {
		if batch = append(batch, row); len(batch) < maxGroup {
			return nil
		}
		return flush()
	}
	var whole bool
	if t.order == "" {
		whole, err = s.eachRow(ctx, t.name, columns, add)
	} else {
		whole, err = s.fromBothEnds(ctx, t.name, columns, t.order, add)
	}
	if err := errors.Join(err, flush()); err != nil {
		return err
	}
	switch {
	case t.derived:
	case !whole:
		s.lose("%s: pages cannot be read, and the rows on them are not there", t.name)
	case refused > 0:
		s.lose("%s: %d rows are not what was written", t.name, refused)
	}
	return nil
}

// lose notes what is lost.
func (s *Salvage) lose(format string, args ...any) {
	s.Lost = append(s.Lost, fmt.Sprintf(format, args...))
}

// put inserts rows, and says how many of them the database refuses.
func (s *Salvage) put(ctx context.Context, insert string, rows [][]driver.Value) (refused int, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	err = s.writer.Write(ctx, &job{do: func(ctx context.Context, c *conn) error {
		e, ok := c.Conn.(driver.ExecerContext)
		if !ok {
			return errors.New("driver cannot execute")
		}
		for _, row := range rows {
			if _, err := e.ExecContext(ctx, insert, c.named(row)); err != nil {
				return err
			}
		}
		return nil
	}})
	switch {
	case err == nil || code(err) != lib.SQLITE_CONSTRAINT:
		return 0, err
	case len(rows) == 1:
		return 1, nil
	}
	for i := range rows {
		n, err := s.put(ctx, insert, rows[i:i+1])
		if refused += n; err != nil {
			return refused, err
		}
	}
	return refused, nil
}
