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

// Done notes the point that was captured and says what was written over another.
// If it cannot be noted, the next capture holds everything.
func (c Capture) Done(ctx context.Context, log *slog.Logger, marks layer.Baselines, taken *layer.Capture, since dormouse.SnapshotID) Captured {
	left := taken.Skipped()
	done := Captured{Since: since, Count: len(left)}
	for _, e := range left[:min(len(left), MaxLeft)] {
		done.Left = append(done.Left, Shown(e.Path))
	}
	done.Entries, done.Bytes = taken.Written()
	if !c.Needed && done.Entries == 0 && since != "" && since == c.Since {
		return done // that point is noted, and there will be no other
	}
	if err := marks.Write(string(c.As), taken.Index(), string(since)); err != nil {
		log.WarnContext(ctx, "the next snapshot will hold everything", "session", c.Fence.Session, "error", err)
	}
	crash.At(crash.CaptureNoted)
	return done
}

// CaptureNothing captures a workspace that no sandbox has had yet.
func CaptureNothing(ctx context.Context, c Capture) (Captured, error) {
	if n := len(c.Workspace.Layers); n > 0 {
		return Captured{Since: c.Workspace.Base}, layer.CopyRootMetadata(ctx, c.Workspace.Layers[n-1], c.To)
	}
	return Captured{Since: c.Workspace.Base}, os.Chmod(c.To, firstRoot)
}

// firstRoot is the mode of the root of a workspace that lies over nothing.
const firstRoot = 0o755
