//go:build !mutant_split_end && !mutant_split_wakeup

package session

import (
	"context"

	"github.com/dormouse-run/dormouse/store"
)

// appendBatch writes a decision whole: prompt-done and turn-end are one
// transaction, and so are a wake-up and the prompt it brings.
func appendBatch(ctx context.Context, s store.Log, _ State, b store.Batch) error {
	return s.Append(ctx, b)
}
