package postgres

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// kind is a type of PostgreSQL that columns have.
type kind struct {
	name string
	oid  uint32
}

var (
	bigintKind      = kind{"bigint", pgtype.Int8OID}
	textKind        = kind{"text", pgtype.TextOID}
	byteaKind       = kind{"bytea", pgtype.ByteaOID}
	timestamptzKind = kind{"timestamptz", pgtype.TimestamptzOID}
)

// array is the values of one column in PostgreSQL's binary format. We encode it
// ourselves: a group has thousands of values, and the driver's generic encoding takes
// longer than the database takes to store them.
type array struct {
	bytes []byte
	nulls uint32 // 1 if there is a NULL among the elements
}

// arrayHeader is how many bytes stand before the elements.
const arrayHeader = 20

func (a *array) reset() {
	a.bytes, a.nulls = append(a.bytes[:0], make([]byte, arrayHeader)...), 0
}

// finish writes the header, once all n elements are there.
func (a *array) finish(k kind, n int) []byte {
	const dimensions, lowerBound = 1, 1
	for i, v := range []uint32{dimensions, a.nulls, k.oid, uint32(n), lowerBound} { //nolint:gosec // a group is not that large
		binary.BigEndian.PutUint32(a.bytes[4*i:], v)
	}
	return a.bytes
}

func (a *array) addNull() {
	a.bytes = binary.BigEndian.AppendUint32(a.bytes, ^uint32(0))
	a.nulls = 1
}

func (a *array) addInteger(v int64) {
	a.bytes = binary.BigEndian.AppendUint32(a.bytes, 8)
	a.bytes = binary.BigEndian.AppendUint64(a.bytes, uint64(v)) //nolint:gosec // the same bits
}

func (a *array) addText(s string) {
	a.bytes = binary.BigEndian.AppendUint32(a.bytes, uint32(len(s))) //nolint:gosec // no text of ours has 2 GiB
	a.bytes = append(a.bytes, s...)
}

// addBytes adds b, or NULL if it is nil.
func (a *array) addBytes(b []byte) {
	if b == nil {
		a.addNull()
		return
	}
	a.bytes = binary.BigEndian.AppendUint32(a.bytes, uint32(len(b))) //nolint:gosec // as above
	a.bytes = append(a.bytes, b...)
}

// pgEpoch is when PostgreSQL's time begins.
var pgEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// addTime adds a time, or NULL if it is the zero time.
func (a *array) addTime(t time.Time) {
	if t.IsZero() {
		a.addNull()
		return
	}
	a.addInteger(t.UnixMicro() - pgEpoch)
}

// decodeInteger reads an integer in the binary format.
func decodeInteger(b []byte) int64 {
	return int64(binary.BigEndian.Uint64(b)) //nolint:gosec // the same bits
}

// signed is how a number of ours is stored; PostgreSQL has no other integers.
func signed(n uint64) int64 {
	return int64(n) //nolint:gosec // what would wrap round is refused by the schema
}

func unsigned(n int64) uint64 {
	return uint64(n) //nolint:gosec // the schema keeps no negative number
}
