//go:build linux

package sandbox

import (
	"context"
	"os"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// CapturedBy is what a capture has written, over a point.
func CapturedBy(c *layer.Capture, since dormouse.SnapshotID) Captured {
	left := c.Left()
	done := Captured{Since: since, Count: len(left)}
	for _, e := range left[:min(len(left), MaxLeft)] {
		done.Left = append(done.Left, e.Path)
	}
	done.Entries, done.Bytes = c.Written()
	return done
}

// CaptureNothing captures a workspace that no sandbox has had yet.
func CaptureNothing(ctx context.Context, c Capture) (Captured, error) {
	if n := len(c.Workspace.Layers); n > 0 {
		return Captured{Since: c.Workspace.Base}, layer.LikeTop(ctx, c.Workspace.Layers[n-1], c.To)
	}
	return Captured{Since: c.Workspace.Base}, os.Chmod(c.To, firstRoot)
}

// firstRoot is the mode of the root of a workspace that lies over nothing.
const firstRoot = 0o755
