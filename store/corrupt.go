package store

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
)

// CorruptColumns collects the columns of a session's row that are not what was written. A
// store leaves what they should hold empty and says so in SessionRow.Damage: the row is
// derived from the log, so a corrupt one must not keep the log, nor the rows of other
// sessions, from being read.
type CorruptColumns struct{ columns []string }

// Add notes a column.
func (u *CorruptColumns) Add(column string) {
	if !slices.Contains(u.columns, column) {
		u.columns = append(u.columns, column)
	}
}

// Seq is a seq as a column has it.
func (u *CorruptColumns) Seq(column string, n int64) uint64 {
	if n <= 0 {
		u.Add(column)
		return 0
	}
	return uint64(n)
}

// Time decodes a time column. A time that cannot be encoded again is corrupt: everything
// that contains it would fail to be encoded.
func (u *CorruptColumns) Time(column string, t time.Time) time.Time {
	if y := t.Year(); y < 0 || y > 9999 {
		u.Add(column)
		return time.Time{}
	}
	return t.UTC()
}

// FromJSON is the value of a column that holds JSON.
func FromJSON[T any](u *CorruptColumns, column string, text []byte) T {
	var v, none T
	if json.Unmarshal(text, &v) != nil {
		u.Add(column)
		return none // and not half of it
	}
	return v
}

// Note says on the row which of its columns could not be read, if any.
func (u *CorruptColumns) Note(i *dormouse.SessionRow) {
	if len(u.columns) == 0 {
		return
	}
	i.CorruptColumns = strings.Join(u.columns, ", ")
	said := "its row among all sessions is not what was written (" + i.CorruptColumns + "); the next event, or a rebuild, writes it anew from the log"
	if i.Damage != "" {
		said = i.Damage + "; " + said
	}
	i.Damage = said
}
