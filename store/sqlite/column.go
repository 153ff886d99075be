package sqlite

import (
	"database/sql"
	"time"

	"github.com/dormouse-run/dormouse/store"
)

// column reads a column of an index row. SQLite checks the type of a column when it is
// written and not when it is read, so that one flipped bit can make anything of it.
type column struct {
	name string
	bad  *store.CorruptColumns
	read func(v any) bool // reports whether it is of the column's kind
}

var _ sql.Scanner = column{}

// Scan never fails: what cannot be read is noted.
func (c column) Scan(v any) error {
	if !c.read(v) {
		c.bad.Add(c.name)
	}
	return nil
}

func textColumn[T ~string](bad *store.CorruptColumns, name string, to *T) column {
	return column{name, bad, func(v any) bool {
		switch v := v.(type) {
		case string:
			*to = T(v)
		case []byte:
			*to = T(v)
			return false // the same bytes, but not as they were written
		default:
			return false
		}
		return true
	}}
}

func integerColumn(bad *store.CorruptColumns, name string, to func(int64)) column {
	return column{name, bad, func(v any) bool {
		n, ok := v.(int64)
		if ok {
			to(n)
		}
		return ok
	}}
}

func timeColumn(bad *store.CorruptColumns, name string, to *time.Time) column {
	return integerColumn(bad, name, func(us int64) { *to = bad.Time(name, fromMicros(us)) })
}

// nullableTimeColumn reads NULL as the zero time.
func nullableTimeColumn(bad *store.CorruptColumns, name string, to *time.Time) column {
	c := timeColumn(bad, name, to)
	read := c.read
	c.read = func(v any) bool { return v == nil || read(v) }
	return c
}

// wellFormed is a column that holds JSON, or an empty list if it does not any more, which
// would fail the whole query.
func wellFormed(column string) string {
	return `iif(json_valid(` + column + `), ` + column + `, '[]')`
}
