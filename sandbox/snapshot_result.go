//go:build linux

package sandbox

import (
	"context"
	"log/slog"
	"os"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Done writes the mark of the snapshot that was taken, and says what was copied. If the
// mark cannot be written, the next snapshot has everything.
func (c SnapshotRequest) Done(ctx context.Context, log *slog.Logger, marks layer.Baselines, taken *layer.Capture, since dormouse.SnapshotID) SnapshotResult {
	left := taken.Skipped()
	done := SnapshotResult{Since: since, Count: len(left)}
	for _, e := range left[:min(len(left), MaxListed)] {
		done.Left = append(done.Left, ShortenPath(e.Path))
	}
	done.Entries, done.Bytes = taken.Written()
	if !c.Needed && done.Entries == 0 && since != "" && since == c.Since {
		return done // the mark of c.Since stays: no snapshot will be recorded
	}
	if err := marks.Write(string(c.As), taken.Index(), string(since)); err != nil {
		log.WarnContext(ctx, "index of the workspace not written; the next snapshot will hold everything", "session", c.Fence.Session, "error", err)
	}
	crash.At(crash.CaptureNoted)
	return done
}

// SnapshotEmpty takes a snapshot of a workspace that no sandbox has had yet.
func SnapshotEmpty(ctx context.Context, c SnapshotRequest) (SnapshotResult, error) {
	if n := len(c.Workspace.Layers); n > 0 {
		return SnapshotResult{Since: c.Workspace.Base}, layer.CopyRootMetadata(ctx, c.Workspace.Layers[n-1], c.To)
	}
	return SnapshotResult{Since: c.Workspace.Base}, os.Chmod(c.To, firstRoot)
}

// firstRoot is the mode of the root of a workspace without layers.
const firstRoot = 0o755
