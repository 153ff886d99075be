//go:build linux

package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/flock"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

var errLocked = errors.New("somebody else holds it")

// lock waits for a lock, in this process and in others.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		unlock, err := tryLock(path)
		if !errors.Is(err, errLocked) {
			return unlock, err
		}
		if err := sleep.For(ctx, pause); err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
	}
}

// tryLock takes a lock unless another holder has it. It ends with its process.
// The file is there only as long as it is locked or its holder was killed.
func tryLock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = flock.Lock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		err = errLocked
	}
	if err == nil {
		err = current(f, path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", errors.Join(err, f.Close()))
	}
	return func() {
		_ = os.Remove(path) // while it is still ours
		_ = f.Close()
	}, nil
}

// current reports whether a locked file still has its name. Its last holder may
// have removed it after it was opened.
func current(f *os.File, path string) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, there) {
		return errLocked
	}
	return err
}
