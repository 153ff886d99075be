//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

var _ sandbox.Freezer = (*Driver)(nil)

// Freeze stops a sandbox and keeps what runs in it. Memory and files are of one
// instant: the kernel is paused before the first byte is written, and is ended
// once the image is whole and durable, without having run again.
func (d *Driver) Freeze(ctx context.Context, raw sandbox.Handle, f runner.Fence) error {
	h, b, err := d.find(raw)
	if err != nil {
		return err
	}
	if h.Session != f.Session || h.Generation != f.Generation {
		return fmt.Errorf("freeze %s: %w", h, runner.ErrForeign)
	}
	v := d.volumeOf(h.Session)
	unlock, err := v.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.freeze(ctx, h, b, v, f); err != nil {
		return fmt.Errorf("freeze %s: %w", h, err)
	}
	return nil
}

// freeze goes on from wherever an earlier call was cut off.
func (d *Driver) freeze(ctx context.Context, h handle, b box, v volume, f runner.Fence) error {
	im, err := v.readImage()
	if err != nil {
		return err
	}
	if im == nil || im.Generation != h.Generation {
		if err := d.save(ctx, h, b, v, f); err != nil {
			return err
		}
		crash.At(crash.SandboxFrozen)
	}
	// What the runner has on disk belongs to its memory.
	err = copyState(b.run(), filepath.Join(v.imageDir(), "run"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.end(ctx, b, v)
}

// save writes the memory of a living sandbox to an image, verified and in its
// place. The sandbox is then paused; if it fails, it goes on.
func (d *Driver) save(ctx context.Context, h handle, b box, v volume, f runner.Fence) (err error) {
	l, err := d.attach(ctx, h, b, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Quiesce(ctx); err != nil {
		return err
	}
	if err := l.kernel.pause(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.kernel.resume())
		}
	}()
	crash.At(crash.SandboxPaused)
	secret, err := b.secret()
	if err != nil {
		return err
	}
	dir := v.imageDir() + ".new"
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir)) // it may be the room that is missing
		}
	}()
	if err := l.kernel.save(dir); err != nil {
		return err
	}
	return image{
		Generation: h.Generation, Secret: secret, Runner: filepath.Base(d.opts.Runner), Program: programVersion(), Host: d.hostVersion(),
	}.seal(dir, v)
}
