//go:build linux

package gvisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/packages"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

func (d *Driver) create(ctx context.Context, spec sandbox.Spec) (*live, error) {
	v := d.session(spec.Fence.Session)
	// Before the session is locked, since it may take long. If it fails, there may still be
	// a sandbox to take over, or a memory image to restore.
	m, missing := d.resolveSpec(ctx, spec.Environment, spec.Image)
	if missing == nil {
		m, missing = d.install(ctx, spec, m)
	}
	if err := os.MkdirAll(v.Dir, 0o700); err != nil {
		return nil, layer.Full(err)
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return nil, layer.Full(err)
	}
	defer unlock()
	if err := errors.Join(v.CheckWorkspace(spec.Workspace), d.takeBranch(v)); err != nil {
		return nil, err
	}
	l, err := d.adopt(ctx, v, spec)
	if l != nil || err != nil {
		return l, err
	}
	if err := d.volumes.FitsFiles(); err != nil {
		return nil, err
	}
	return d.start(ctx, v, spec, m, missing)
}

// adopt takes over the sandbox that an earlier call for the same generation has started,
// and ends any other.
func (d *Driver) adopt(ctx context.Context, v sessionDir, spec sandbox.Spec) (*live, error) {
	f := spec.Fence
	r, err := v.readRecord()
	if err != nil || r == nil {
		return nil, err
	}
	b, err := d.boxOf(r.Box)
	if err != nil {
		return nil, err
	}
	if err := b.fence().Check(f); err != nil {
		return nil, err
	}
	if r.Generation > f.Generation {
		return nil, runner.ErrStale
	}
	if r.Generation == f.Generation && r.Workspace == spec.Workspace.Number && r.Layout == layout {
		if l := d.takeOver(ctx, v, b, f, *r); l != nil {
			return l, nil
		}
	}
	return nil, d.end(ctx, b, v)
}

// takeOver attaches to a sandbox that was started, or may have been just before its server
// was killed. It returns nil if the sandbox does not answer, or is a spare that does not
// have the files of the session yet.
func (d *Driver) takeOver(ctx context.Context, v sessionDir, b box, f runner.Fence, r record) *live {
	k, err := findSentry(d.conf, b.id)
	if err != nil || !k.alive() || !r.Started && !k.running() {
		return nil
	}
	if filled, err := b.hasFiles(); err != nil || !filled {
		return nil
	}
	l, err := d.open(ctx, handle{Session: f.Session, Generation: f.Generation, Box: b.id}, b, f, k, d.specOf(&r, b), func() error {
		return d.resumeLeft(ctx, k, b)
	})
	if err == nil {
		if err = d.clearPaused(b); err != nil {
			_ = l.Close()
		}
	}
	if err != nil {
		d.log.WarnContext(ctx, "sandbox not taken over", "session", f.Session, "generation", f.Generation, "error", err)
		return nil
	}
	if r.Started {
		d.removeOldWorkspaces(ctx, v, r.Workspace) // the server that started it may not have come to that
	} else if err := d.markStarted(ctx, v, &r); err != nil {
		_ = l.Close()
		return nil
	}
	l.record = r
	return l
}

// markStarted records that a sandbox runs. The memory image that it was restored from is
// used up.
func (d *Driver) markStarted(ctx context.Context, v sessionDir, r *record) error {
	if err := v.Latest().Record(r.Workspace); err != nil {
		return err
	}
	d.removeOldWorkspaces(ctx, v, r.Workspace)
	_, err := os.Stat(v.wakingDir())
	r.Started, r.Kept = true, r.Kept || err == nil
	if err := v.writeRecord(*r); err != nil {
		return err
	}
	return os.RemoveAll(v.wakingDir())
}

// start starts a sandbox: from the memory image of the generation before if there is one,
// else from the files alone, for which nothing may be missing.
func (d *Driver) start(ctx context.Context, v sessionDir, spec sandbox.Spec, m boxSpec, missing error) (_ *live, err error) {
	f := spec.Fence
	// First, so that on a full disk no spare is used up.
	if _, err := os.Stat(v.Image()); err == nil {
		if err := d.volumes.Open(v.Volume, volume.Volume{}, m.Limits); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, d.volumes.Close(v.Volume))
			}
		}()
	}
	r := record{Generation: f.Generation, Workspace: spec.Workspace.Number, Layout: layout}
	im, err := d.usableImage(v, spec)
	if err == nil && im != nil {
		var l *live
		if l, err = d.startFrom(ctx, v, spec, r, d.imageSpec(im), im); err == nil {
			return l, nil
		}
		if ctx.Err() != nil || errors.Is(err, dormouse.ErrFull) { // the image is restored when there is room
			return nil, err
		}
	}
	if err != nil {
		d.log.WarnContext(ctx, "processes not woken", "session", f.Session, "generation", f.Generation, "error", err)
		r.Lost = err.Error()
	}
	if missing != nil {
		return nil, missing
	}
	if err := v.removeImages(); err != nil {
		return nil, err
	}
	return d.startFrom(ctx, v, spec, r, m, nil)
}

// imageSpec is the spec of the sandbox that a memory image is from.
func (d *Driver) imageSpec(im *memoryImage) boxSpec {
	if im.Spec == nil {
		return d.defaults
	}
	return *im.Spec
}

// usableImage returns the memory image that a generation is restored from, nil if there is
// none or must be none, and an error that says why it cannot be used.
func (d *Driver) usableImage(v sessionDir, spec sandbox.Spec) (*memoryImage, error) {
	if spec.Fresh {
		return nil, nil //nolint:nilnil // that is what it means
	}
	if _, err := os.Stat(v.wakingDir()); err == nil {
		return nil, errors.New("the server ended while they were being woken")
	}
	im, err := v.readImage()
	switch {
	case err != nil || im == nil:
		return nil, err
	case im.Generation+1 != spec.Fence.Generation:
		return nil, nil //nolint:nilnil // it is older than the files
	case im.Lost != "":
		return nil, errors.New(im.Lost)
	case im.Workspace != spec.Workspace.Number && (im.Workspace+1 != spec.Workspace.Number || !spec.Workspace.Sealed):
		return nil, errors.New("they ran over other files")
	case im.Program != programVersion():
		return nil, errors.New("they were frozen by another version of gVisor")
	case im.Layout != layout:
		return nil, errors.New("they were frozen by another version of this program")
	case im.Host != hostVersion(d.imageSpec(im)):
		return nil, errors.New("the programs in the sandbox have changed meanwhile")
	}
	if _, err := os.Stat(d.imageSpec(im).Root); err != nil {
		return nil, fmt.Errorf("the programs in the sandbox are gone: %w", err)
	}
	if name := d.imageSpec(im).PackageLayer; name != "" {
		l, err := d.packageLayer(name)
		var is *packages.Manifest
		if err == nil {
			is, err = l.Manifest()
		}
		if err != nil || is == nil {
			return nil, fmt.Errorf("the packages in the sandbox are gone: %w", cmp.Or(err, fs.ErrNotExist))
		}
	}
	return im, im.verify()
}

// startFrom starts a sandbox from a memory image, or from files alone if that is nil.
func (d *Driver) startFrom(ctx context.Context, v sessionDir, spec sandbox.Spec, r record, m boxSpec, im *memoryImage) (_ *live, err error) {
	f := spec.Fence
	secret, program := newSecret(), filepath.Base(d.opts.Runner)
	if im != nil {
		secret, program = im.Secret, im.Runner
	}
	b := d.newBox()
	var ready *spare
	switch {
	case !m.equivalent(d.defaults): // there are no spares of other specs
	case im == nil:
		ready = d.claim(d.pool.ready)
	case program == filepath.Base(d.opts.Runner):
		ready = d.claim(d.pool.blank)
	}
	if ready != nil {
		b = ready.box
	}
	r.Box, r.Spec = b.id, &m
	if err := errors.Join(v.noteImage(m.Image), v.notePackages(m.PackageLayer), v.writeRecord(r)); err != nil { // a sweep must know its owner
		if ready != nil {
			ready.close()
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
			defer cancel()
			err = errors.Join(err, d.end(undo, b, v))
		}
	}()
	k, start, err := d.prepareBox(ctx, v.Volume, spec.Workspace, b, ready, secret, program, m)
	if err != nil {
		return nil, err
	}
	if im != nil {
		start = func() error { return d.restoreImage(k, v) }
	}
	named := make(chan error, 1) // while the runner starts
	go func() { named <- v.SyncName() }()
	l, err := d.open(ctx, handle{Session: f.Session, Generation: f.Generation, Box: b.id}, b, f, k, m, start)
	if unnamed := <-named; unnamed != nil && err == nil {
		err = errors.Join(unnamed, l.Close())
	}
	if err != nil {
		return nil, err
	}
	if im != nil {
		crash.At(crash.SandboxWoken)
	}
	if err := d.markStarted(ctx, v, &r); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.record = r
	return l, nil
}

// prepareBox does everything to a box but start it: a spare that waits for its session, or
// a new one.
func (d *Driver) prepareBox(ctx context.Context, v volume.Volume, w sandbox.Workspace, b box, s *spare, secret, program string, m boxSpec) (k *sentry, start func() error, err error) {
	switch {
	case s == nil:
		err = b.create(secret)
	case s.gate == nil: // the runner in a memory image has its own secret
		err = b.writeSecret(secret)
	}
	if err == nil {
		err = d.volumes.Open(v, b.ahead(), m.Limits)
	}
	if err == nil {
		err = d.volumes.DropAhead(b.ahead())
	}
	if err == nil {
		err = v.CreateWorkspace(ctx, w)
	}
	if err == nil {
		err = b.mountFiles(v, w)
	}
	switch {
	case err != nil && s != nil:
		s.close()
		return nil, nil, err
	case err != nil:
		return nil, nil, err
	case s != nil && s.gate == nil:
		k, s.kernel = s.kernel, nil
		s.close()
		return k, k.start, nil
	case s != nil:
		k, s.kernel = s.kernel, nil
		return k, func() error { s.close(); return nil }, nil
	}
	if k, err = d.launch(ctx, b, program, m); err != nil {
		return nil, nil, err
	}
	return k, k.start, nil
}

// restoreImage restores a session's memory image. It claims the image first: whatever
// happens from here on, no other kernel may be restored from it.
func (d *Driver) restoreImage(k *sentry, v sessionDir) error {
	if err := v.claimImage(); err != nil {
		return fmt.Errorf("take the memory image: %w", err)
	}
	crash.At(crash.SandboxWaking)
	return k.restore(v.wakingDir())
}

// launch starts the kernel of a box, under its limits, with nothing in it yet.
func (d *Driver) launch(ctx context.Context, b box, program string, m boxSpec) (*sentry, error) {
	spec := d.ociSpec(b, program, m)
	raw, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.bundle(), "config.json"), raw, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("describe the sandbox: %w", err)
	}
	if err := d.mountPackages(ctx, m); err != nil {
		return nil, err
	}
	conf, err := configure(d.kernels(), d.opts.Program, rootAccess(m))
	if err != nil {
		return nil, err
	}
	k, err := newSentry(conf, b.id, spec, b.bundle())
	if err != nil {
		return nil, err
	}
	if err := d.cpu.Group(b.id).Apply(m.Limits, k.pids()); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}
