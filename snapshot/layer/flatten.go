//go:build linux

package layer

import (
	"context"
	"fmt"
)

// Flatten copies what layers show, the lowest first, with nothing below them, into
// an empty directory. It shares nothing with them. The limits are of what comes of it.
func Flatten(ctx context.Context, dirs []string, l Limits, to string) error {
	if err := merge(ctx, dirs, l, to); err != nil {
		return fmt.Errorf("flatten: %w", err)
	}
	return nil
}
