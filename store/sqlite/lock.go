package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/internal/flock"
)

// ErrLocked means that another process uses the data directory.
var ErrLocked = errors.New("data directory is in use")

// A server that is killed while it starts a process leaves its lock with that
// process until it has begun: an instant, unless the machine is very busy.
const (
	lockTimeout = 2 * time.Second
	lockRetry   = 5 * time.Millisecond
)

// lock takes the data directory for this process. The kernel gives it back when
// the process ends, however it ends.
func lock(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "dormouse.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockTimeout); ; {
		locked, err := flock.TryLock(f, flock.Exclusive)
		if locked {
			break
		}
		if err == nil {
			if ctx.Err() == nil && holderIsDead(f) && time.Now().Before(end) {
				time.Sleep(lockRetry) //nolint:forbidigo // bounded above, before anything runs
				continue
			}
			err = fmt.Errorf("%s is held by %s: %w", dir, holder(f), ErrLocked)
		}
		return nil, errors.Join(err, f.Close())
	}
	// The pid is for people; the lock is the kernel's.
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder says which process wrote the lock file. One that is stopped is not killed for it:
// nothing here says whether it is still wanted. People are told what they can do.
func holder(f *os.File) string {
	pid := holderPID(f)
	switch {
	case pid <= 0:
		return "another process"
	case isStopped(pid):
		return fmt.Sprintf("process %d, which is stopped and holds it until it goes on or ends (kill -CONT %d, or kill -KILL %d)", pid, pid, pid)
	}
	return fmt.Sprintf("process %d", pid)
}

// isStopped reports whether a process stands still by a signal.
func isStopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := strings.TrimSpace(string(b[bytes.LastIndexByte(b, ')')+1:])) // its name may hold anything
	return strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t")
}

// holderIsDead reports whether the process that wrote the lock file is gone.
func holderIsDead(f *os.File) bool {
	pid := holderPID(f)
	return pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func holderPID(f *os.File) int {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
