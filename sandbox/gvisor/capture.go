//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

var _ sandbox.Snapshotter = (*Driver)(nil)

// Capture copies what changed in a workspace. What runs over it is paused for as
// long as it takes to see what has changed since it was looked at last: all files
// are of one instant.
func (d *Driver) Capture(ctx context.Context, c sandbox.Capture) (sandbox.Captured, error) {
	if err := c.Fence.Validate(); err != nil {
		return sandbox.Captured{}, err
	}
	v := d.volumeOf(c.Fence.Session)
	unlock, err := v.lock(ctx)
	if err != nil {
		return sandbox.Captured{}, err
	}
	defer unlock()
	var done sandbox.Captured
	if err = v.takes(c.Workspace); err == nil && c.Handle != nil {
		done, err = d.captureLive(ctx, v, c)
	} else if err == nil {
		done, err = d.captureCold(ctx, v, c)
	}
	if err != nil {
		return sandbox.Captured{}, fmt.Errorf("capture workspace %d of %s: %w", c.Workspace.Number, v.session, layer.Full(err))
	}
	return done, nil
}

// captureLive captures the workspace of a sandbox that runs.
func (d *Driver) captureLive(ctx context.Context, v volume, c sandbox.Capture) (sandbox.Captured, error) {
	b, err := d.captures(v, c)
	if err == nil {
		err = v.failed()
	}
	if err == nil {
		err = v.reach()
	}
	if err != nil {
		return sandbox.Captured{}, err
	}
	k, err := findSentry(d.conf, b.id)
	if err != nil {
		return sandbox.Captured{}, err
	}
	if !k.alive() {
		return sandbox.Captured{}, sandbox.ErrGone
	}
	defer k.close()
	defer d.attend(b)()
	taken, since := d.begins(v, c)
	if err := ahead(ctx, taken); err != nil {
		return sandbox.Captured{}, err
	}
	if since == c.Since && since != "" {
		same, err := unchanged(ctx, k, taken)
		if err == nil && same { // a server before this one may have held it
			err = d.goOn(ctx, k, b)
		}
		if err != nil {
			return sandbox.Captured{}, err
		}
		if same {
			return c.Done(ctx, d.log, v.marks(c.Workspace.Number), taken, since), nil
		}
	}
	err = d.holdStill(ctx, k, b, func() error {
		held, err := k.mapped(ctx)
		if err != nil {
			return err
		}
		return settle(ctx, taken, held)
	})
	if err == nil {
		err = v.sync() // a snapshot is what the session has at least
	}
	if err != nil {
		return sandbox.Captured{}, err
	}
	return c.Done(ctx, d.log, v.marks(c.Workspace.Number), taken, since), nil
}

// unchanged reports whether a workspace is what it was at the point that was compared
// with. A look that finds every file as it was proves that all were so when it
// began, whatever is written meanwhile: a write shows in whichever file is looked at
// after it. Nothing has to be held for that, unless something is written to as
// memory, which does not show.
func unchanged(ctx context.Context, k *sentry, taken *layer.Capture) (bool, error) {
	if entries, _ := taken.Written(); entries > 0 || taken.Dirty() {
		return false, nil
	}
	held, err := k.mapped(ctx)
	return err == nil && len(held) == 0, err
}

// captures refuses whoever may not capture, and returns where the sandbox is.
func (d *Driver) captures(v volume, c sandbox.Capture) (box, error) {
	h, b, err := d.find(c.Handle)
	if err != nil {
		return b, err
	}
	if h.Session != c.Fence.Session || h.Generation != c.Fence.Generation {
		return b, runner.ErrForeign
	}
	r, err := v.readRecord()
	if err != nil {
		return b, err
	}
	if r == nil || r.Box != b.id {
		return b, sandbox.ErrGone
	}
	if r.Workspace != c.Workspace.Number {
		return b, fmt.Errorf("the sandbox has workspace %d: %w", r.Workspace, runner.ErrStale)
	}
	return b, b.fence().Check(c.Fence)
}

// begins makes ready to capture what lies over a point that is known, or over the base.
func (d *Driver) begins(v volume, c sandbox.Capture) (*layer.Capture, dormouse.SnapshotID) {
	since := c.Workspace.Base
	var before layer.Index
	if c.Since != "" {
		before = v.marks(c.Workspace.Number).Read(string(c.Since), c.Limits)
	}
	if before != nil {
		since = c.Since
	}
	return layer.NewCapture(v.upper(c.Workspace.Number), c.To, before, c.Workspace.Layers, c.Limits), since
}

// ahead copies what can be copied while everything runs, again if that was so much
// that meanwhile there may be much more.
func ahead(ctx context.Context, taken *layer.Capture) error {
	const most, little = 4, 4 << 20
	for range most {
		if _, err := taken.Pass(ctx, nil); err != nil || taken.Copied() < little {
			return err
		}
	}
	return nil
}

// settle copies the rest while nothing runs.
func settle(ctx context.Context, taken *layer.Capture, held []string) error {
	const most = 3
	for range most {
		settled, err := taken.Pass(ctx, held)
		if settled || err != nil {
			return err
		}
	}
	return errors.New("somebody outside the sandbox writes to the workspace")
}

// captureCold captures a workspace that no sandbox has.
func (d *Driver) captureCold(ctx context.Context, v volume, c sandbox.Capture) (_ sandbox.Captured, err error) {
	if err := d.endLeftover(ctx, v, c.Fence); err != nil {
		return sandbox.Captured{}, err
	}
	if err := v.sound(); err != nil {
		return sandbox.Captured{}, err
	}
	there, err := v.show()
	if err != nil {
		return sandbox.Captured{}, err
	}
	defer func() { err = errors.Join(err, d.closeVolume(v)) }()
	if there {
		err = d.secure(v)
	}
	if there && err == nil {
		there, err = v.has(c.Workspace.Number)
	}
	if err != nil {
		return sandbox.Captured{}, err
	}
	if !there {
		return sandbox.CaptureNothing(ctx, c)
	}
	taken, since := d.begins(v, c)
	if err := errors.Join(settle(ctx, taken, nil), v.sync()); err != nil {
		return sandbox.Captured{}, err
	}
	return c.Done(ctx, d.log, v.marks(c.Workspace.Number), taken, since), nil
}

// endLeftover ends the sandbox of a session that should have none any more.
func (d *Driver) endLeftover(ctx context.Context, v volume, f runner.Fence) error {
	r, err := v.readRecord()
	if err != nil || r == nil {
		return err
	}
	b, err := d.boxOf(r.Box)
	if err != nil {
		return err
	}
	if err := b.refuses(r.Generation, f); err != nil {
		return err
	}
	return d.end(ctx, b, v)
}

var _ sandbox.Sealer = (*Driver)(nil)

// Seals reports that a stopped workspace is as good as the layers it is made of.
func (d *Driver) Seals() bool { return true }
