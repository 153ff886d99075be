// Package dirlock keeps others, in this process or another, from a directory.
package dirlock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/dormouse-run/dormouse/internal/flock"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Lock waits until no other process has dir locked. A directory that does not
// exist has nothing to lock, and is not created.
func Lock(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		locked, err := flock.TryLock(f, flock.Exclusive)
		if locked {
			return func() { _ = f.Close() }, nil
		}
		if err == nil {
			err = sleep.For(ctx, pause)
		}
		if err != nil {
			return nil, fmt.Errorf("lock: %w", errors.Join(err, f.Close()))
		}
	}
}
