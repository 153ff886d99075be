package postgres

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// table is rows on their way to the database: a statement with one array for
// each column. It spells them itself, in PostgreSQL's binary format, since a
// group has thousands of values and the general way costs more than the
// database takes to store them.
type table struct {
	statement string
	columns   []column
	rows      int
	at        int // the column that comes next
}

// column is an array in the making.
type column struct {
	oid   uint32
	nulls uint32
	array []byte
}

// header is what stands before the elements of an array.
const header = 20

// types are the letters that stand for columns in newTable.
var types = map[rune]uint32{'i': pgtype.Int8OID, 's': pgtype.TextOID, 'b': pgtype.ByteaOID, 't': pgtype.TimestamptzOID}

// newTable is a table for a statement whose parameters are arrays of what the
// letters say: i an integer, s a text, b bytes, t a time.
func newTable(statement, letters string) *table {
	t := &table{statement: statement}
	for _, letter := range letters {
		t.columns = append(t.columns, column{oid: types[letter]})
	}
	t.clear()
	return t
}

func (t *table) clear() {
	t.rows, t.at = 0, 0
	for i := range t.columns {
		c := &t.columns[i]
		c.array, c.nulls = append(c.array[:0], make([]byte, header)...), 0
	}
}

// next is the column whose turn it is. A row is complete when it has one value
// for each.
func (t *table) next() *column {
	c := &t.columns[t.at]
	if t.at++; t.at == len(t.columns) {
		t.at = 0
		t.rows++
	}
	return c
}

func (t *table) integer(v int64) *table {
	c := t.next()
	c.array = binary.BigEndian.AppendUint32(c.array, 8)
	c.array = binary.BigEndian.AppendUint64(c.array, uint64(v)) //nolint:gosec // the same bits
	return t
}

func (t *table) number(v uint64) *table { return t.integer(signed(v)) }

func (t *table) text(s string) *table {
	c := t.next()
	c.array = binary.BigEndian.AppendUint32(c.array, uint32(len(s))) //nolint:gosec // no text of ours has 2 GiB
	c.array = append(c.array, s...)
	return t
}

// bytes adds b, or NULL if it is nil.
func (t *table) bytes(b []byte) *table {
	if b == nil {
		return t.null()
	}
	c := t.next()
	c.array = binary.BigEndian.AppendUint32(c.array, uint32(len(b))) //nolint:gosec // as above
	c.array = append(c.array, b...)
	return t
}

// epoch is when PostgreSQL's time begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// time adds a time, or NULL if it is the zero time.
func (t *table) time(v time.Time) *table {
	if v.IsZero() {
		return t.null()
	}
	return t.integer(v.UnixMicro() - epoch)
}

func (t *table) null() *table {
	c := t.next()
	c.array = binary.BigEndian.AppendUint32(c.array, ^uint32(0))
	c.nulls = 1
	return t
}

// binaryFormat asks for parameters and results in the binary format.
var binaryFormat = []int16{1}

// send queues the statement with its rows, and reports whether there are any.
func (t *table) send(p *pgconn.Pipeline) bool {
	if t.rows == 0 {
		return false
	}
	params := make([][]byte, len(t.columns))
	for i := range t.columns {
		c := &t.columns[i]
		for at, v := range []uint32{1, c.nulls, c.oid, uint32(t.rows), 1} { //nolint:gosec // a group is not that large
			binary.BigEndian.PutUint32(c.array[4*at:], v)
		}
		params[i] = c.array
	}
	p.SendQueryPrepared(t.statement, params, binaryFormat, binaryFormat)
	return true
}

// signed is how a number of ours is stored; PostgreSQL has no other integers.
func signed(n uint64) int64 {
	return int64(n) //nolint:gosec // what would wrap round is refused by the schema
}

func unsigned(n int64) uint64 {
	return uint64(n) //nolint:gosec // the schema keeps no negative number
}
