package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/inside"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

var _ sandbox.Snapshotter = (*Driver)(nil)

// maxPasses bounds the passes over a workspace that keeps changing.
const maxPasses = 5

// Snapshot copies what changed in a workspace. Nothing can be paused here: files
// that are written to meanwhile are copied again, a few times, and may then be as
// they never were.
func (d *Driver) Snapshot(ctx context.Context, c sandbox.SnapshotRequest) (sandbox.SnapshotResult, error) {
	p, err := d.placeOf(c.Fence.Session, c.Fence.Generation)
	if err != nil {
		return sandbox.SnapshotResult{}, err
	}
	done, err := d.capture(ctx, p, c)
	if err != nil {
		return sandbox.SnapshotResult{}, fmt.Errorf("capture workspace %d of %s: %w", c.Workspace.Number, p.session, layer.Full(err))
	}
	return done, nil
}

func (d *Driver) capture(ctx context.Context, p place, c sandbox.SnapshotRequest) (sandbox.SnapshotResult, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		return sandbox.SnapshotResult{}, err
	}
	defer unlock()
	if err := d.captures(p, c); err != nil {
		return sandbox.SnapshotResult{}, err
	}
	f := d.filesOf(p.session)
	if _, err := f.latest().Check(c.Workspace); err != nil {
		return sandbox.SnapshotResult{}, err
	}
	from := f.at(c.Workspace.Number)
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return sandbox.SnapshotEmpty(ctx, c)
	}
	marks := f.marks(c.Workspace.Number)
	before, since := known(marks, c)
	taken := layer.NewCapture(beneath.At(from), c.To, before, nil, c.Limits)
	settled := false
	for n := 0; n < maxPasses && !settled; n++ {
		if settled, err = taken.Pass(ctx, nil); err != nil {
			return sandbox.SnapshotResult{}, err
		}
	}
	return c.Done(ctx, d.log, marks, taken, since), nil
}

// captures refuses whoever may not capture.
func (d *Driver) captures(p place, c sandbox.SnapshotRequest) error {
	if err := p.fence().Check(c.Fence); err != nil {
		return err
	}
	if c.Handle == nil {
		return nil
	}
	of, err := d.find(c.Handle)
	if err != nil {
		return err
	}
	if of.session != p.session || of.generation != p.generation {
		return runner.ErrForeign
	}
	if pid, err := inside.LivePID(p.dir); err != nil || pid == 0 {
		return errors.Join(err, sandbox.ErrGone)
	}
	return nil
}

// known is what the workspace was like at the point that was asked for, or at the
// one it was made from. Of neither it may be known; then all of it is captured.
func known(m layer.Baselines, c sandbox.SnapshotRequest) (layer.Index, dormouse.SnapshotID) {
	for _, point := range []dormouse.SnapshotID{c.Since, c.Workspace.Base} {
		if point == "" {
			continue
		}
		if before := m.Read(string(point), c.Limits); before != nil {
			return before, point
		}
	}
	return nil, ""
}
