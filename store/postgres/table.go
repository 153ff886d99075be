package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// statement is a prepared statement that takes rows made of R: one array for each of its
// columns, so that a group of any size is one statement per table.
type statement[R any] struct {
	name    string
	text    string
	columns []column[R]
}

// column is what one parameter of a statement is called, and how it is made of a row.
type column[R any] struct {
	name string
	kind kind
	add  func(*array, R)
}

// define makes a statement. In its text {rows} stands for the rows, as a table b with the
// columns by their names, and {column} for the array of one column.
func define[R any](name, text string, columns ...column[R]) *statement[R] {
	names, arrays, replaced := make([]string, len(columns)), make([]string, len(columns)), make([]string, 0, 2*len(columns)+2)
	for i, c := range columns {
		names[i], arrays[i] = c.name, fmt.Sprintf("$%d::%s[]", i+1, c.kind.name)
		replaced = append(replaced, "{"+c.name+"}", arrays[i])
	}
	replaced = append(replaced, "{rows}", "unnest("+strings.Join(arrays, ", ")+") AS b ("+strings.Join(names, ", ")+")")
	return &statement[R]{name: name, text: strings.NewReplacer(replaced...).Replace(text), columns: columns}
}

func bigint[R any, N int | int64 | uint64](name string, value func(R) N) column[R] {
	return column[R]{name, bigintKind, func(a *array, r R) { a.addInteger(int64(value(r))) }}
}

func text[R any, S ~string](name string, value func(R) S) column[R] {
	return column[R]{name, textKind, func(a *array, r R) { a.addText(string(value(r))) }}
}

// nullableText is a text that a row may not have, which is NULL.
func nullableText[R any, S ~string](name string, value func(R) (S, bool)) column[R] {
	return column[R]{name, textKind, func(a *array, r R) {
		if s, ok := value(r); ok {
			a.addText(string(s))
		} else {
			a.addNull()
		}
	}}
}

// bytea is bytes; nil is NULL.
func bytea[R any](name string, value func(R) []byte) column[R] {
	return column[R]{name, byteaKind, func(a *array, r R) { a.addBytes(value(r)) }}
}

// timestamptz is a time; the zero time is NULL.
func timestamptz[R any](name string, value func(R) time.Time) column[R] {
	return column[R]{name, timestamptzKind, func(a *array, r R) { a.addTime(value(r)) }}
}

// table is rows on their way to the database with one statement.
type table[R any] struct {
	*statement[R]
	arrays []array // by column
	rows   int
}

func newTable[R any](s *statement[R]) *table[R] {
	t := &table[R]{statement: s, arrays: make([]array, len(s.columns))}
	t.reset()
	return t
}

func (t *table[R]) reset() {
	t.rows = 0
	for i := range t.arrays {
		t.arrays[i].reset()
	}
}

func (t *table[R]) add(row R) {
	for i := range t.columns {
		t.columns[i].add(&t.arrays[i], row)
	}
	t.rows++
}

// binaryFormat asks for parameters and results in the binary format.
var binaryFormat = []int16{1}

// send queues the statement with its rows, and reports whether there are any.
func (t *table[R]) send(p *pgconn.Pipeline) bool {
	if t.rows == 0 {
		return false
	}
	params := make([][]byte, len(t.columns))
	for i, c := range t.columns {
		params[i] = t.arrays[i].finish(c.kind, t.rows)
	}
	p.SendQueryPrepared(t.name, params, binaryFormat, binaryFormat)
	return true
}

func (t *table[R]) prepared() (name, text string) { return t.name, t.text }
