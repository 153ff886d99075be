//go:build mutant_split_end || mutant_split_wakeup

package session

import (
	"context"

	"github.com/dormouse-run/dormouse/store"
)

// appendBatch writes a decision in two halves, so that the crash matrix can show
// that it would notice.
func appendBatch(ctx context.Context, s store.Log, before State, b store.Batch) error {
	for i, e := range b.Events {
		if e.Type != splitsAt || i == 0 {
			continue
		}
		_, rows := Project(before, b.Events[:i])
		first := store.Batch{Session: b.Session, Epoch: b.Epoch, After: b.After, Events: b.Events[:i], Rows: &rows}
		if err := s.Append(ctx, first); err != nil {
			return err
		}
		b.After, b.Events = b.Events[i-1].Seq, b.Events[i:]
		break
	}
	return s.Append(ctx, b)
}
