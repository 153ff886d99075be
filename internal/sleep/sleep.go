// Package sleep waits for a time or for the end of a context, whichever is first.
package sleep

import (
	"context"
	"time"
)

// For returns nil after d, or the cause if ctx ends before.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
