//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

const (
	// syncedMark is the mark of a sync without a snapshot.
	syncedMark = "synced"
	// maxNoted is how many files a mark may have.
	maxNoted = 2 << 20
)

// SyncWorkspace syncs the volume and writes a mark of what a workspace is like, so that a
// recovery can tell what was synced from what was written later. newest is the last
// snapshot that was taken, whose mark stays. The first result is why the mark could not be
// written.
func (v Volume) SyncWorkspace(ctx context.Context, workspace uint64, newest dormouse.SnapshotID) (noted, err error) {
	// Scanned before it is synced: what is written meanwhile is not taken for synced.
	limits := layer.Limits{Entries: maxNoted}
	now, err := layer.ScanBaseline(ctx, v.Upper(workspace), limits)
	if errors.Is(err, layer.ErrTooMany) {
		return nil, v.Sync()
	}
	if err != nil {
		return nil, errors.Join(v.Sync(), fmt.Errorf("look at what is synced: %w", err))
	}
	if err := v.Sync(); err != nil {
		return nil, err
	}
	return v.Marks(workspace).Write(syncedMark, now, string(newest)), nil
}
