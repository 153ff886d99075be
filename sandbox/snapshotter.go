package sandbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Workspace says which files a sandbox has. A session has one workspace after another:
// restoring a snapshot creates the next number, over the layers of that snapshot. The home
// directory and temporary files are the same in all.
type Workspace struct {
	// Number counts the workspaces of a session. The first is 0 and lies over
	// nothing.
	Number uint64
	// Base is the snapshot that the layers are of, empty if there are none.
	Base dormouse.SnapshotID
	// Layers are the directories that it begins with, the lowest first, all of them in one
	// directory. They are never written to, and no file has two names in one.
	Layers []string
	// Sealed says that the layers are exactly the last files of the workspace before this
	// one, so that a memory image that belongs to those files may be restored.
	Sealed bool
}

// Snapshotter is implemented by drivers that can take snapshots of workspaces and create
// workspaces from layers.
//
// Create with a number must give the files of that workspace: those of its layers and what
// was written over them since. With a number that is new it must leave the files of the
// one before untouched until the sandbox has started, and must remove them after that. A
// number that is older than one which has started must be refused with runner.ErrStale.
type Snapshotter interface {
	// Snapshot must write what changed in a workspace since another snapshot into an empty
	// directory, as a layer. If the driver has no mark of that snapshot it must write all
	// that lies over the base, or all there is. It must write a mark of the snapshot it
	// takes, and must have the last two. Whatever runs must run on. It returns ErrGone if
	// the sandbox of the handle is gone; the snapshot is then taken without one.
	Snapshot(ctx context.Context, c SnapshotRequest) (SnapshotResult, error)
}

// Sealer is implemented by drivers for which a workspace over layers is as good as one
// over nothing, so that the workspace of a stopped sandbox is made a layer and removed.
type Sealer interface {
	Seals() bool
}

// SnapshotRequest says what to take a snapshot of.
type SnapshotRequest struct {
	Fence runner.Fence
	// Handle names the sandbox that has the workspace. Without it there is none.
	Handle    Handle
	Workspace Workspace
	// Since is the snapshot to compare with, empty to copy all that lies over the base.
	Since dormouse.SnapshotID
	// As is the snapshot that is taken. Taking the same twice must succeed. Needed says
	// that it is recorded even if nothing changed.
	As     dormouse.SnapshotID
	Needed bool
	// To is an empty directory.
	To     string
	Limits layer.Limits
}

// SnapshotResult is what a snapshot has copied.
type SnapshotResult struct {
	// Since is what it lies over: the snapshot that was asked for, or the base; empty if it
	// lies over nothing.
	Since dormouse.SnapshotID
	// Left are paths of files that a layer cannot hold, such as sockets and devices, Count how
	// many there are. At most MaxListed are listed.
	Left  []string
	Count int
	// Entries and Bytes are of what was written.
	Entries int
	Bytes   int64
}

// MaxListed is how many paths are listed, and MaxPathLen how many bytes of each: a path can
// have any length.
const (
	MaxListed  = 100
	MaxPathLen = 1024
)

// ShortenPath is a path as it is listed, whole unless it is very long.
func ShortenPath(path string) string {
	if len(path) <= MaxPathLen {
		return path
	}
	middle := fmt.Sprintf("…%x…", sha256.Sum256([]byte(path)))
	side := (MaxPathLen - len(middle)) / 2 //nolint:mnd // its beginning and its end
	// A character that is cut in two is left out.
	return strings.ToValidUTF8(path[:side], "") + middle + strings.ToValidUTF8(path[len(path)-side:], "")
}
