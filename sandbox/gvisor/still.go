//go:build linux

package gvisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/internal/crash"
)

// A kernel is held still for a moment while its files are captured. That is noted
// in its box before, and is no part of gVisor's own notes, which a server that is
// killed while it writes them leaves torn. Who comes after such a server asks the
// kernel whether it stands still: a kernel counts how often it was stopped, and
// ends if it is told to go on once too often.

func (b box) still() string { return filepath.Join(b.dir, "still") }

// holdStill does something while nothing runs in a sandbox. It must be called with
// the session locked. If the kernel dies meanwhile, that is nothing to whoever has
// seen its files.
func (d *Driver) holdStill(k *sentry, b box, do func() error) (err error) {
	if err := d.goOn(k, b); err != nil {
		return err
	}
	if still, err := k.isStill(); err != nil || still { // its memory was to be written
		if err == nil {
			err = do()
		}
		return err
	}
	if err := os.WriteFile(b.still(), nil, 0o600); err != nil {
		return fmt.Errorf("note that a sandbox is held: %w", err)
	}
	crash.At(crash.CapturePausing)
	if err := k.c.Sandbox.Pause(b.id); err != nil {
		return errors.Join(err, d.goOn(k, b))
	}
	defer func() {
		on := k.c.Sandbox.Resume(b.id)
		if on != nil && !k.alive() {
			on = nil
		}
		crash.At(crash.CaptureResumed)
		if on == nil {
			on = d.letGo(b)
		}
		err = errors.Join(err, on)
	}()
	crash.At(crash.CapturePaused)
	if err := do(); err != nil {
		return err
	}
	crash.At(crash.CaptureCopied)
	return nil
}

// goOn has a sandbox run on that a server had held when it ended. The note of that
// stays until it is seen to run.
func (d *Driver) goOn(k *sentry, b box) error {
	if _, err := os.Stat(b.still()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	still, err := k.isStill()
	if err == nil && still {
		err = k.c.Sandbox.Resume(b.id)
	}
	if err != nil {
		return fmt.Errorf("have a held sandbox run on: %w", err)
	}
	return nil
}

// letGo removes the note of a sandbox that runs.
func (d *Driver) letGo(b box) error {
	if err := os.Remove(b.still()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note that a sandbox runs on: %w", err)
	}
	return nil
}

// isStill asks a kernel whether all that runs in it is stopped. What only waits for
// a file looks the same, but not for long.
func (s *sentry) isStill() (bool, error) {
	const looks, between = 4, 2 * time.Millisecond
	for n := range looks {
		if n > 0 {
			time.Sleep(between)
		}
		status, err := s.read("/proc/1/status")
		if err != nil {
			return false, err
		}
		if !strings.Contains(status, "\nState:\tD") {
			return false, nil
		}
	}
	return true, nil
}

// read returns the beginning of a file as it is inside.
func (s *sentry) read(name string) (string, error) {
	const most = 4096 // which a pipe holds
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	err = s.c.Sandbox.ReadFile(s.c.ID, name, 0, most, w)
	if err = errors.Join(err, w.Close()); err != nil {
		return "", fmt.Errorf("look into the sandbox: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(r, most))
	return string(raw), err
}
