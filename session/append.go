//go:build !mutant_split_end

package session

import (
	"context"

	"github.com/dormouse-run/dormouse/store"
)

// appendBatch writes a decision whole: prompt-done and turn-end are one
// transaction.
func appendBatch(ctx context.Context, s store.Log, _ State, b store.Batch) error {
	return s.Append(ctx, b)
}
