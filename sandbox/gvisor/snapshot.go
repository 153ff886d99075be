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

// Snapshot copies what changed in a workspace. The sandbox is paused only for the last
// pass, so that all files are of one instant.
func (d *Driver) Snapshot(ctx context.Context, c sandbox.SnapshotRequest) (sandbox.SnapshotResult, error) {
	if err := c.Fence.Validate(); err != nil {
		return sandbox.SnapshotResult{}, err
	}
	v := d.session(c.Fence.Session)
	unlock, err := v.Lock(ctx)
	if err != nil {
		return sandbox.SnapshotResult{}, err
	}
	defer unlock()
	var done sandbox.SnapshotResult
	if err = v.CheckWorkspace(c.Workspace); err == nil && c.Handle != nil {
		done, err = d.snapshotRunning(ctx, v, c)
	} else if err == nil {
		done, err = d.snapshotStopped(ctx, v, c)
	}
	if err != nil {
		return sandbox.SnapshotResult{}, fmt.Errorf("snapshot workspace %d of %s: %w", c.Workspace.Number, v.Session, layer.Full(err))
	}
	return done, nil
}

// snapshotRunning takes a snapshot of a workspace while its sandbox runs.
func (d *Driver) snapshotRunning(ctx context.Context, v sessionDir, c sandbox.SnapshotRequest) (sandbox.SnapshotResult, error) {
	b, err := d.checkSnapshot(v, c)
	if err == nil {
		err = v.CheckFailed()
	}
	if err == nil {
		err = v.ensureMounted()
	}
	if err != nil {
		return sandbox.SnapshotResult{}, err
	}
	k, err := findSentry(d.conf, b.id)
	if err != nil {
		return sandbox.SnapshotResult{}, err
	}
	if !k.alive() {
		return sandbox.SnapshotResult{}, sandbox.ErrGone
	}
	defer k.close()
	defer d.cpu.Raise(b.id)()
	taken, since := d.newSnapshot(v, c)
	if err := copyAhead(ctx, taken); err != nil {
		return sandbox.SnapshotResult{}, err
	}
	if since == c.Since && since != "" {
		same, err := unchanged(ctx, k, taken)
		if err == nil && same { // a server that was killed may have paused it
			err = d.resumeLeft(ctx, k, b)
		}
		if err != nil {
			return sandbox.SnapshotResult{}, err
		}
		if same {
			return c.Done(ctx, d.log, v.Marks(c.Workspace.Number), taken, since), nil
		}
	}
	err = d.whilePaused(ctx, k, b, func() error {
		held, err := k.mapped(ctx)
		if err != nil {
			return err
		}
		return copyRest(ctx, taken, held)
	})
	if err == nil {
		err = v.Sync() // after a power cut the session has at least its snapshot
	}
	if err != nil {
		return sandbox.SnapshotResult{}, err
	}
	return c.Done(ctx, d.log, v.Marks(c.Workspace.Number), taken, since), nil
}

// unchanged reports whether a workspace is what it was at the snapshot that it is compared
// with. A scan that finds every file unchanged proves that all were so when it began: a
// write meanwhile shows in whichever file is scanned after it. The sandbox need not be
// paused for that, unless files are mapped for writing, which changes no time.
func unchanged(ctx context.Context, k *sentry, taken *layer.Capture) (bool, error) {
	if entries, _ := taken.Written(); entries > 0 || taken.Dirty() {
		return false, nil
	}
	held, err := k.mapped(ctx)
	return err == nil && len(held) == 0, err
}

// checkSnapshot refuses stale requests, and returns the box of the sandbox.
func (d *Driver) checkSnapshot(v sessionDir, c sandbox.SnapshotRequest) (box, error) {
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

// newSnapshot prepares a snapshot of what changed since another that has a mark, or of all
// that lies over the base.
func (d *Driver) newSnapshot(v sessionDir, c sandbox.SnapshotRequest) (*layer.Capture, dormouse.SnapshotID) {
	since := c.Workspace.Base
	var before layer.Index
	if c.Since != "" {
		before = v.Marks(c.Workspace.Number).Read(string(c.Since), c.Limits)
	}
	if before != nil {
		since = c.Since
	}
	return layer.NewCapture(v.Upper(c.Workspace.Number), c.To, before, c.Workspace.Layers, c.Limits), since
}

// copyAhead copies what it can while everything runs, and again if that was so much that
// there may be much more by then.
func copyAhead(ctx context.Context, taken *layer.Capture) error {
	const most, little = 4, 4 << 20
	for range most {
		if _, err := taken.Pass(ctx, nil); err != nil || taken.Copied() < little {
			return err
		}
	}
	return nil
}

// copyRest copies the rest while nothing runs.
func copyRest(ctx context.Context, taken *layer.Capture, held []string) error {
	const most = 3
	for range most {
		settled, err := taken.Pass(ctx, held)
		if settled || err != nil {
			return err
		}
	}
	return errors.New("somebody outside the sandbox writes to the workspace")
}

// snapshotStopped takes a snapshot of a workspace that no sandbox has.
func (d *Driver) snapshotStopped(ctx context.Context, v sessionDir, c sandbox.SnapshotRequest) (_ sandbox.SnapshotResult, err error) {
	if err := d.endStale(ctx, v, c.Fence); err != nil {
		return sandbox.SnapshotResult{}, err
	}
	if err := v.CheckSound(); err != nil {
		return sandbox.SnapshotResult{}, err
	}
	there, err := v.Mount()
	if err != nil {
		return sandbox.SnapshotResult{}, err
	}
	defer func() { err = errors.Join(err, d.volumes.Close(v.Volume)) }()
	if there {
		err = d.volumes.Back(v.Volume)
	}
	if there && err == nil {
		there, err = v.HasWorkspace(c.Workspace.Number)
	}
	if err != nil {
		return sandbox.SnapshotResult{}, err
	}
	if !there {
		return sandbox.SnapshotEmpty(ctx, c)
	}
	taken, since := d.newSnapshot(v, c)
	if err := errors.Join(copyRest(ctx, taken, nil), v.Sync()); err != nil {
		return sandbox.SnapshotResult{}, err
	}
	return c.Done(ctx, d.log, v.Marks(c.Workspace.Number), taken, since), nil
}

// endStale ends the sandbox of a session that should have none any more.
func (d *Driver) endStale(ctx context.Context, v sessionDir, f runner.Fence) error {
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
