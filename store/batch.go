package store

import (
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// Last is the seq the log ends with once b is in it.
func (b Batch) Last() uint64 { return b.After + uint64(len(b.Events)) }

// Validate refuses a batch whose log and rows contradict each other. Stores call it
// before they write.
func (b Batch) Validate() error {
	for i, e := range b.Events {
		if want := b.After + uint64(i) + 1; e.Seq != want {
			return fmt.Errorf("event %d of the batch has seq %d, not %d: %w", i, e.Seq, want, dormouse.ErrInvalid)
		}
	}
	if len(b.Events) > 0 && b.Rows == nil {
		return fmt.Errorf("the batch has events and no rows: %w", dormouse.ErrInvalid)
	}
	if b.Rows != nil {
		if b.Rows.Session.Session != b.Session {
			return fmt.Errorf("index names %q: %w", b.Rows.Session.Session, dormouse.ErrInvalid)
		}
		if b.Rows.Session.Seq != b.Last() {
			return fmt.Errorf("index has seq %d, not %d: %w", b.Rows.Session.Seq, b.Last(), dormouse.ErrInvalid)
		}
	}
	if b.State != nil && b.State.Seq != b.Last() {
		return fmt.Errorf("state is of seq %d, not %d: %w", b.State.Seq, b.Last(), dormouse.ErrInvalid)
	}
	return nil
}

// Seqs is what ids were given to.
func Seqs(given []dormouse.ClientID) map[string]uint64 {
	seqs := make(map[string]uint64, len(given))
	for _, id := range given {
		seqs[id.ID] = id.Seq
	}
	return seqs
}

// ValidateFirst refuses a batch that cannot begin a session.
func (b Batch) ValidateFirst() error {
	if b.Epoch != 0 {
		return fmt.Errorf("a session begins under epoch 0: %w", dormouse.ErrInvalid)
	}
	return b.ValidateImport()
}

// ValidateImport refuses a batch that cannot begin a session, nor one that has
// lived elsewhere.
func (b Batch) ValidateImport() error {
	if b.After != 0 || len(b.Events) == 0 {
		return fmt.Errorf("a session begins with event 1: %w", dormouse.ErrInvalid)
	}
	return b.Validate()
}

// Refused reports whether a write was refused before it changed anything, so that what
// shares its transaction can still be committed.
func Refused(err error) bool {
	return errors.Is(err, dormouse.ErrNotFound) || errors.Is(err, dormouse.ErrLeaseLost) || errors.Is(err, dormouse.ErrConflict)
}
