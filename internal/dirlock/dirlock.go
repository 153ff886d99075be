// Package dirlock keeps others, in this process or another, from a directory.
package dirlock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Lock waits until nobody else has dir locked. A directory that is not there has
// nothing to lock, and whoever comes late does not bring it back.
func Lock(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = sleep.For(ctx, pause)
		}
		if err != nil {
			return nil, fmt.Errorf("lock: %w", errors.Join(err, f.Close()))
		}
	}
}
