//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gvisor.dev/gvisor/runsc/container"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/sandbox"
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
func (d *Driver) holdStill(ctx context.Context, k *sentry, b box, do func() error) (err error) {
	if err := d.goOn(ctx, k, b); err != nil {
		return err
	}
	if paused, err := d.sleeps(ctx, k, b); err != nil || paused {
		if err == nil {
			err = do()
		}
		return err
	}
	if err := b.note(b.still()); err != nil {
		return fmt.Errorf("note that a sandbox is held: %w", err)
	}
	crash.At(crash.CapturePausing)
	began := time.Now()
	if err := k.stop(ctx); err != nil {
		return err // the note stays: who knows what becomes of it
	}
	crash.At(crash.CapturePaused)
	if err = do(); err == nil {
		crash.At(crash.CaptureCopied)
	}
	on := k.tell(ctx, func() error { return k.c.Sandbox.Resume(b.id) })
	d.log.DebugContext(ctx, "sandbox held still", "sandbox", b.id, "held_for", time.Since(began))
	crash.At(crash.CaptureResumed)
	switch {
	case on == nil:
		on = d.letGo(b)
	case errors.Is(on, sandbox.ErrGone):
		on = nil
	default:
		on = errors.Join(on, d.goOn(context.WithoutCancel(ctx), k, b))
	}
	return errors.Join(err, on)
}

// heedWithin is how long a kernel may take to do as it is told.
const heedWithin = 10 * time.Second

// stop stops everything inside. A process that waits for this machine may not stop
// for long; then all of them run on.
func (s *sentry) stop(ctx context.Context) error {
	stopped := make(chan error, 1)
	go func() { stopped <- s.c.Sandbox.Pause(s.c.ID) }() // it ends once all has stopped, or the kernel has
	select {
	case err := <-stopped:
		return s.died(ctx, err)
	case <-time.After(heedWithin):
	}
	late := errors.New("what runs in the sandbox does not stop")
	still, err := s.isStill(context.WithoutCancel(ctx))
	if err == nil && still {
		return errors.Join(late, s.tell(ctx, func() error { return s.c.Sandbox.Resume(s.c.ID) }))
	}
	go func() { // it was not even told yet
		if <-stopped == nil {
			_ = s.c.Sandbox.Resume(s.c.ID)
		}
	}()
	return errors.Join(late, err)
}

// sleeps reports whether a sandbox is paused because its memory was about to be
// written. It stays so.
func (d *Driver) sleeps(ctx context.Context, k *sentry, b box) (bool, error) {
	if !b.noted(b.quiet()) {
		return false, nil
	}
	return k.isStill(ctx)
}

// goOn has a sandbox run on that a server had held when it ended. The note of that
// stays until it is seen to run.
func (d *Driver) goOn(ctx context.Context, k *sentry, b box) error {
	if !b.noted(b.still()) {
		return nil
	}
	still, err := k.isStill(ctx)
	if err == nil && still {
		err = k.tell(ctx, func() error { return k.c.Sandbox.Resume(b.id) })
	}
	if err != nil {
		return fmt.Errorf("have a held sandbox run on: %w", err)
	}
	return nil
}

// letGo removes the note of a sandbox that runs.
func (d *Driver) letGo(b box) error {
	if err := b.forget(b.still()); err != nil {
		return fmt.Errorf("note that a sandbox runs on: %w", err)
	}
	return nil
}

// tell tells the kernel something, and waits until it has done so, but not for
// ever.
func (s *sentry) tell(ctx context.Context, what func() error) error {
	done := make(chan error, 1)
	go func() { done <- what() }() // it ends with the kernel, if not before
	select {
	case err := <-done:
		return s.died(ctx, err)
	case <-time.After(heedWithin):
		return errors.New("the kernel does not answer")
	}
}

// died says of a kernel that could not be told something that it is dead, if it is
// or is about to be.
func (s *sentry) died(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s.proc.Wait(ctx) == nil {
		return fmt.Errorf("%w: %w", sandbox.ErrGone, err)
	}
	return err
}

// isStill asks a kernel whether all that runs in it is stopped. What only waits for
// a file looks the same, but not for long. And whoever ended may have told it to stop
// at the very last, which it then does in a moment.
func (s *sentry) isStill(ctx context.Context) (bool, error) {
	const looks, enough, between = 60, 20, 5 * time.Millisecond
	still := 0
	for n := range looks {
		if n > 0 {
			if err := sleep.For(ctx, between); err != nil {
				return false, err
			}
		}
		status, err := s.read(ctx, "/proc/1/status")
		if err != nil {
			return false, err
		}
		if still++; !strings.Contains(status, "\nState:\tD") {
			still = 0
		}
		if still == enough {
			return true, nil
		}
	}
	return false, nil
}

// complaint is what the runner wrote down about itself, if it wrote anything and the
// kernel still tells.
func (s *sentry) complaint(ctx context.Context) error {
	if !s.alive() {
		return nil
	}
	said := make(chan string, 1)
	c := s.c
	go func() { // it ends with the kernel, if not before, and may outlive s
		text, err := readInside(c, insideState+"/log")
		if err != nil {
			text = ""
		}
		said <- text
	}()
	const most, within = 500, time.Second
	select {
	case text := <-said:
		if text = strings.TrimSpace(text); text != "" {
			return fmt.Errorf("its log ends: %q", text[max(0, len(text)-most):])
		}
	case <-ctx.Done():
	case <-time.After(within):
	}
	return nil
}

// read returns the beginning of a file as it is inside.
func (s *sentry) read(ctx context.Context, name string) (string, error) {
	c := s.c
	read := make(chan string, 1)
	err := s.tell(ctx, func() error { // who may outlive us
		text, err := readInside(c, name)
		read <- text
		return err
	})
	if err != nil {
		return "", fmt.Errorf("look into the sandbox: %w", err)
	}
	return <-read, nil
}

// readInside has the kernel read the beginning of a file as it is inside. The path
// means nothing on the host.
func readInside(c *container.Container, name string) (string, error) {
	const most = 4096 // which a pipe holds
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	if err := errors.Join(c.Sandbox.ReadFile(c.ID, name, 0, most, w), w.Close()); err != nil {
		return "", err
	}
	raw, err := io.ReadAll(io.LimitReader(r, most))
	return string(raw), err
}
