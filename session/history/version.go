package history

import (
	"context"

	"github.com/dormouse-run/dormouse"
)

// A log that has events of a newer program, or events that mean something else to it,
// must not be folded by this one: it would decide from a state that never was. Such a
// session is left to servers that can fold it. It is not damaged: nothing of it is
// written, and nothing that runs for it is ended.
//
// The row of a session says what its log needs, in the same transaction as the event
// that needs it, and the database refuses the claim of a program that does not know that
// much. So an older server does not even take the session, and does not disturb its owner.

// currentRow is the row of a session, which it refuses if it says that the log needs a
// newer program. A caller that folds a log without having claimed it calls this after
// that: what was appended meanwhile has raised the row before it could be read.
func (r Reader) currentRow(ctx context.Context, id dormouse.SessionID) (dormouse.SessionRow, error) {
	row, err := r.Store.Session(ctx, id)
	if err == nil {
		err = Newer(row)
	}
	return row, err
}

// Newer is why this program leaves a session to others, if it does.
func Newer(row dormouse.SessionRow) error {
	if row.Needs > dormouse.LogVersion {
		return &dormouse.NewerLogError{Session: row.Session, Needs: row.Needs}
	}
	return nil
}
