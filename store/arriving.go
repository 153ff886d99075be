package store

import (
	"time"

	"github.com/dormouse-run/dormouse"
)

// Arriving lays out a session whose log is not all there yet. It has no tenant and
// no phase and is never due: nobody is shown it, and no server runs it. A rebuild
// makes it a session when the last event is there.
func Arriving(id dormouse.SessionID, created time.Time, last dormouse.Event) *Rows {
	return &Rows{Index: Index{Session: id, Created: created, Updated: last.Time, Seq: last.Seq}}
}

// Arriving reports whether the session's log is not all there yet: a session that
// was laid out from its log has a phase.
func (i Index) Arriving() bool { return i.Phase == "" }
