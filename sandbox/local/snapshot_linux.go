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
	done, err := d.takeSnapshot(ctx, p, c)
	if err != nil {
		return sandbox.SnapshotResult{}, fmt.Errorf("snapshot workspace %d of %s: %w", c.Workspace.Number, p.session, layer.Full(err))
	}
	return done, nil
}

func (d *Driver) takeSnapshot(ctx context.Context, p place, c sandbox.SnapshotRequest) (sandbox.SnapshotResult, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		return sandbox.SnapshotResult{}, err
	}
	defer unlock()
	if err := d.checkRequest(p, c); err != nil {
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
	before, since := baseline(marks, c)
	taken := layer.NewCapture(beneath.At(from), c.To, before, nil, c.Limits)
	unchanged := false
	for n := 0; n < maxPasses && !unchanged; n++ {
		if unchanged, err = taken.Pass(ctx, nil); err != nil {
			return sandbox.SnapshotResult{}, err
		}
	}
	return c.Done(ctx, d.log, marks, taken, since), nil
}

// checkRequest refuses a request that is stale or whose sandbox is gone.
func (d *Driver) checkRequest(p place, c sandbox.SnapshotRequest) error {
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

// baseline is the index of the workspace at the snapshot to compare with, or at the one it
// was made from. If there is none of either, all files are copied.
func baseline(m layer.Baselines, c sandbox.SnapshotRequest) (layer.Index, dormouse.SnapshotID) {
	for _, id := range []dormouse.SnapshotID{c.Since, c.Workspace.Base} {
		if id == "" {
			continue
		}
		if before := m.Read(string(id), c.Limits); before != nil {
			return before, id
		}
	}
	return nil, ""
}
