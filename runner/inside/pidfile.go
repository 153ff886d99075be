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

const pidFile = "alive"

// LockPIDFile writes our PID to the PID file in dir and keeps the file locked until it
// is closed or the process ends, however it ends.
func LockPIDFile(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, pidFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the pid file: %w", err)
	}
	// LivePID in another process takes the lock for an instant.
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
		return nil, fmt.Errorf("lock the pid file: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}

// RemovePIDFile removes the PID file of a dead runner.
func RemovePIDFile(dir string) error {
	if err := os.Remove(filepath.Join(dir, pidFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the pid file: %w", err)
	}
	return nil
}

// LivePID returns the process that has dir's PID file locked, 0 if none does.
func LivePID(dir string) (pid int, err error) {
	f, err := os.Open(filepath.Join(dir, pidFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the pid file: %w", err)
	}
	defer func() { _ = f.Close() }()
	err = flock.Lock(f, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return 0, fmt.Errorf("read the pid file: %w", err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		return 0, fmt.Errorf("read the pid file: %w", err)
	}
	if pid, err = strconv.Atoi(string(b)); err != nil { // locked, but the PID is not written yet
		return 0, fmt.Errorf("read the pid file: %w", err)
	}
	return pid, nil
}
