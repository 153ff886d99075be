//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

var _ sandbox.Freezer = (*Driver)(nil)

// Freeze stops a sandbox and keeps its processes. Memory and files are of one instant: the
// kernel is paused before the first byte is written, and killed once the image is verified
// and durable, without having run again.
func (d *Driver) Freeze(ctx context.Context, raw sandbox.Handle, f runner.Fence) error {
	h, b, err := d.find(raw)
	if err != nil {
		return err
	}
	if h.Session != f.Session || h.Generation != f.Generation {
		return fmt.Errorf("freeze %s: %w", h, runner.ErrForeign)
	}
	v := d.session(h.Session)
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.freeze(ctx, h, b, v, f); err != nil {
		return fmt.Errorf("freeze %s: %w", h, err)
	}
	return nil
}

// freeze continues from wherever an earlier call was interrupted.
func (d *Driver) freeze(ctx context.Context, h handle, b box, v sessionDir, f runner.Fence) error {
	crash.At(crash.SandboxLocked)
	if err := b.fence().Check(f); err != nil {
		return err
	}
	im, err := v.readImage()
	if err != nil {
		return err
	}
	if im == nil || im.Generation != h.Generation {
		if err := v.ensureMounted(); err != nil { // its files are synced with it
			return err
		}
		if err := d.save(ctx, h, b, v, f); err != nil {
			return err
		}
		crash.At(crash.SandboxFrozen)
	}
	return d.end(ctx, b, v)
}

// save writes the memory of a live sandbox to an image, verified and in its place. The
// sandbox is paused then; if save fails, it is resumed.
func (d *Driver) save(ctx context.Context, h handle, b box, v sessionDir, f runner.Fence) (err error) {
	k, leave, err := d.quiesce(ctx, h, b, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	defer d.cpu.Raise(b.id)() // the kernel of the sandbox writes the image
	if err := k.pause(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.resume(), b.clearNote(b.quiescedNote()))
		}
	}()
	crash.At(crash.SandboxPaused)
	// A kernel keeps the memory of its processes in a memfd. Where that is not counted there
	// is no limit to it either.
	if need, err := d.cpu.Group(b.id).SharedMemory(); err == nil {
		if err := d.volumes.FitsImage(need); err != nil {
			return err
		}
	}
	secret, err := b.secret()
	if err != nil {
		return err
	}
	r, err := v.readRecord()
	if err != nil {
		return err
	}
	of := d.specOf(r, b)
	dir := v.newImageDir()
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir)) // the disk may be full
		}
	}()
	if err := k.save(dir); err != nil {
		return err
	}
	var number uint64
	if r != nil {
		number = r.Workspace
	}
	return memoryImage{
		Workspace: number, Generation: h.Generation, Secret: secret, Runner: k.program(), Program: programVersion(), Host: hostVersion(of), Spec: &of,
		Layout: layout,
	}.seal(dir, v)
}

// quiesce returns the kernel of a sandbox whose runner has quiesced, which is noted before
// anything is paused. A server may be killed between pausing a kernel and noting that: the
// next must not wait for a runner that cannot answer, but continues from here. Pausing
// twice is harmless.
func (d *Driver) quiesce(ctx context.Context, h handle, b box, f runner.Fence) (_ *sentry, leave func() error, err error) {
	if b.hasNote(b.quiescedNote()) {
		k, err := findSentry(d.conf, b.id)
		if err != nil {
			return nil, nil, err
		}
		if k.alive() {
			return k, func() error { k.close(); return nil }, nil
		}
	}
	l, err := d.attach(ctx, h, b, f)
	if err != nil {
		return nil, nil, err
	}
	if err = l.Quiesce(ctx); err == nil {
		err = b.setNote(b.quiescedNote())
	}
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l.kernel, l.Close, nil
}
