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

// A kernel is paused for a moment while the last files of a snapshot are copied. That is
// noted in its box before, and not by gVisor, whose state file is corrupt if the server is
// killed while it writes it. The next server asks the kernel whether it is paused: a kernel
// counts pauses, and dies if it is resumed once too often.

func (b box) pausedNote() string { return filepath.Join(b.dir, "still") }

// whilePaused calls do while the sandbox is paused. It must be called with the session
// locked. If the kernel dies meanwhile, what do has seen of the files is still good.
func (d *Driver) whilePaused(ctx context.Context, k *sentry, b box, do func() error) (err error) {
	if err := d.resumeLeft(ctx, k, b); err != nil {
		return err
	}
	if paused, err := d.isHibernating(ctx, k, b); err != nil || paused {
		if err == nil {
			err = do()
		}
		return err
	}
	if err := b.setNote(b.pausedNote()); err != nil {
		return fmt.Errorf("note that a sandbox is held: %w", err)
	}
	crash.At(crash.CapturePausing)
	began := time.Now()
	if err := k.pauseTasks(ctx); err != nil {
		return err // the note stays: the kernel may still pause
	}
	crash.At(crash.CapturePaused)
	if err = do(); err == nil {
		crash.At(crash.CaptureCopied)
	}
	on := k.control(ctx, func() error { return k.c.Sandbox.Resume(b.id) })
	d.log.DebugContext(ctx, "sandbox paused", "sandbox", b.id, "paused_for", time.Since(began))
	crash.At(crash.CaptureResumed)
	switch {
	case on == nil:
		on = d.clearPaused(b)
	case errors.Is(on, sandbox.ErrGone):
		on = nil
	default:
		on = errors.Join(on, d.resumeLeft(context.WithoutCancel(ctx), k, b))
	}
	return errors.Join(err, on)
}

// controlTimeout is how long a kernel may take to do what it is told.
const controlTimeout = 10 * time.Second

// pauseTasks pauses everything inside. A process that waits for this machine may not stop
// for long; then all are resumed.
func (s *sentry) pauseTasks(ctx context.Context) error {
	stopped := make(chan error, 1)
	go func() { stopped <- s.c.Sandbox.Pause(s.c.ID) }() // it returns once all is paused, or the kernel has ended
	select {
	case err := <-stopped:
		return s.orGone(ctx, err)
	case <-time.After(controlTimeout):
	}
	late := errors.New("what runs in the sandbox does not stop")
	still, err := s.isPaused(context.WithoutCancel(ctx))
	if err == nil && still {
		return errors.Join(late, s.control(ctx, func() error { return s.c.Sandbox.Resume(s.c.ID) }))
	}
	go func() { // the request is still on its way
		if <-stopped == nil {
			_ = s.c.Sandbox.Resume(s.c.ID)
		}
	}()
	return errors.Join(late, err)
}

// isHibernating reports whether a sandbox is paused because its memory was about to be
// written. It stays paused.
func (d *Driver) isHibernating(ctx context.Context, k *sentry, b box) (bool, error) {
	if !b.hasNote(b.quiescedNote()) {
		return false, nil
	}
	return k.isPaused(ctx)
}

// resumeLeft resumes a sandbox that a server had paused when it was killed. The note of
// that stays until the sandbox is seen to run.
func (d *Driver) resumeLeft(ctx context.Context, k *sentry, b box) error {
	if !b.hasNote(b.pausedNote()) {
		return nil
	}
	still, err := k.isPaused(ctx)
	if err == nil && still {
		err = k.control(ctx, func() error { return k.c.Sandbox.Resume(b.id) })
	}
	if err != nil {
		return fmt.Errorf("have a held sandbox run on: %w", err)
	}
	return nil
}

// clearPaused removes the note of a sandbox that runs.
func (d *Driver) clearPaused(b box) error {
	if err := b.clearNote(b.pausedNote()); err != nil {
		return fmt.Errorf("note that a sandbox runs on: %w", err)
	}
	return nil
}

// control has the kernel do something and waits for it, but not for ever.
func (s *sentry) control(ctx context.Context, what func() error) error {
	done := make(chan error, 1)
	go func() { done <- what() }() // it returns when the kernel ends, if not before
	select {
	case err := <-done:
		return s.orGone(ctx, err)
	case <-time.After(controlTimeout):
		return errors.New("the kernel does not answer")
	}
}

// orGone wraps the error of a control call in ErrGone if the kernel is dead or about to
// be.
func (s *sentry) orGone(ctx context.Context, err error) error {
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

// isPaused asks a kernel whether everything inside is paused. A process in uninterruptible
// sleep looks the same, but not for long. And a server may have asked for a pause just
// before it was killed, which takes a moment.
func (s *sentry) isPaused(ctx context.Context) (bool, error) {
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

// runnerLog is the end of the log of the runner, if it has one and the kernel still
// answers.
func (s *sentry) runnerLog(ctx context.Context) error {
	if !s.alive() {
		return nil
	}
	said := make(chan string, 1)
	c := s.c
	go func() { // it returns when the kernel ends, if not before, and may outlive s
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
	err := s.control(ctx, func() error { // it may outlive us
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
