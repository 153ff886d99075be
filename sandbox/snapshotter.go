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

// Workspace says which files a sandbox has. A session has one workspace after
// another: going back to a point is going on to the next number, over the layers
// of that point. The home directory and temporary files are the same in all.
type Workspace struct {
	// Number counts the workspaces of a session. The first is 0 and lies over
	// nothing.
	Number uint64
	// Base is the point that the layers make up, empty if there are none.
	Base dormouse.SnapshotID
	// Layers are the directories that it begins with, the lowest first, all of them
	// in one directory. Nobody writes to them, and no file has two names in one.
	Layers []string
	// Sealed says that the layers are exactly the files that the workspace before
	// this one was left with, so that what ran over those may run on.
	Sealed bool
}

// Snapshotter is implemented by drivers whose workspaces can be captured and made
// from layers.
//
// Create with a number must give the files of that workspace: those of its layers
// and what was written over them since. With a number that is new it must leave
// the files of the one before untouched until the sandbox has started, and must
// remove them after that. A number that is older than one which has started must
// be refused with runner.ErrStale.
type Snapshotter interface {
	// Capture must write what changed in a workspace since a point into an empty
	// directory, as a layer. If the driver has no note of that point it must write
	// all that lies over the base, or all there is. It must note the point it
	// captures, and must know the last two. Whatever runs must run on. It returns
	// ErrGone if the sandbox of the handle is gone; its files are then captured
	// without one.
	Capture(ctx context.Context, c Capture) (Captured, error)
}

// Sealer is implemented by drivers for whom a workspace over layers is as good as one
// over nothing, so that one whose sandbox has stopped is made a layer and forgotten.
type Sealer interface {
	Seals() bool
}

// Capture says what to capture.
type Capture struct {
	Fence runner.Fence
	// Handle names the sandbox that has the workspace. Without it there is none.
	Handle    Handle
	Workspace Workspace
	// Since is the point to compare with, empty to have all that lies over the base.
	Since dormouse.SnapshotID
	// As is the point that is captured. Capturing the same twice must be well. Needed
	// says that there will be one even if nothing changed.
	As     dormouse.SnapshotID
	Needed bool
	// To is an empty directory.
	To     string
	Limits layer.Limits
}

// Captured is what a capture has written.
type Captured struct {
	// Since is what it lies over: the point that was asked for, or the base; empty
	// if it lies over nothing.
	Since dormouse.SnapshotID
	// Left are paths of what no layer carries, such as sockets and devices, Count
	// how many there are. At most MaxLeft are listed.
	Left  []string
	Count int
	// Entries and Bytes are of what was written.
	Entries int
	Bytes   int64
}

// MaxLeft is how many paths of what was left out a capture lists, and MaxShown how many
// bytes of each: what lies deep has a path of any length.
const (
	MaxLeft  = 100
	MaxShown = 1024
)

// Shown is a path as it is listed. One that is very long has the SHA-256 of all of it in the
// place of its middle, so that no two are shown alike.
func Shown(path string) string {
	if len(path) <= MaxShown {
		return path
	}
	middle := fmt.Sprintf("…%x…", sha256.Sum256([]byte(path)))
	side := (MaxShown - len(middle)) / 2 //nolint:mnd // its beginning and its end
	// A character that is cut in two is left out.
	return strings.ToValidUTF8(path[:side], "") + middle + strings.ToValidUTF8(path[len(path)-side:], "")
}
