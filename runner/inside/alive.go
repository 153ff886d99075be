package inside

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/flock"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

const aliveFile = "alive"

// HoldAlive locks dir's sign of life until the returned file is closed or the
// process ends, however it ends.
func HoldAlive(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, aliveFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hold the sign of life: %w", err)
	}
	// Whoever looks whether we live holds the lock for an instant.
	for range 50 {
		if err = flock.Lock(f, unix.LOCK_EX|unix.LOCK_NB); err == nil {
			break
		}
		_ = sleep.For(ctx, 10*time.Millisecond)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("hold the sign of life: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}

// RemoveAlive removes the sign of life of a runner that is dead.
func RemoveAlive(dir string) error {
	if err := os.Remove(filepath.Join(dir, aliveFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the sign of life: %w", err)
	}
	return nil
}

// Alive returns the process that holds dir's sign of life, 0 if none does.
func Alive(dir string) (pid int, err error) {
	f, err := os.Open(filepath.Join(dir, aliveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for a sign of life: %w", err)
	}
	defer func() { _ = f.Close() }()
	err = flock.Lock(f, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return 0, fmt.Errorf("look for a sign of life: %w", err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		return 0, fmt.Errorf("look for a sign of life: %w", err)
	}
	if pid, err = strconv.Atoi(string(b)); err != nil { // locked this instant, not yet signed
		return 0, fmt.Errorf("look for a sign of life: %w", err)
	}
	return pid, nil
}
