// Package sleep waits for a while, or until a context ends.
package sleep

import (
	"context"
	"time"
)

// For waits for d. It returns early, with the cause, once ctx ends. A context that has
// ended already is reported even if d is not positive.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
