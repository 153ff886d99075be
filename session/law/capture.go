package law

import (
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// Of is the wanted snapshot as far as the state says what it is: all but its layers, and
// what could not be captured.
func (w WantedSnapshot) Of(s State) dormouse.Snapshot {
	p := dormouse.Snapshot{
		ID: w.ID, Parent: s.Workspace.Newest, Label: w.Label, Reason: w.Reason, At: s.Seq, Midway: s.Works(),
		Generation: s.Sandbox.Generation, Workspace: s.Workspace.Number,
	}
	switch w.Reason {
	case dormouse.SnapshotOfTurn:
		p.At = s.Workspace.Due
	case dormouse.SnapshotOfCall:
		p.At, p.Midway = ofCall(s)
	}
	return p
}

// ofCall says of which instant the snapshot of a tool call is, and whether something else
// was at work then, so that no conversation goes with it.
func ofCall(s State) (at uint64, midway bool) {
	call := s.Workspace.Calls[0]
	for _, t := range s.Threads {
		midway = midway || t.Turn != nil && t.Turn.Blocked == "" && t.Turn.ID != call.Turn
	}
	for _, o := range s.Ops {
		midway = midway || o.Kind.InSandbox() && o.Kind != dormouse.OpRead
	}
	return call.Seq, midway
}

// Needed reports whether the snapshot is captured even if no file can have changed.
func (w WantedSnapshot) Needed() bool {
	return w.Reason == dormouse.SnapshotAsked || w.Reason == dormouse.SnapshotSealing
}

// Awaited reports whether a turn or a tool call waits until the snapshot is taken.
func (w WantedSnapshot) Awaited() bool {
	return w.Reason == dormouse.SnapshotOfTurn || w.Reason == dormouse.SnapshotOfCall
}

// Redundant reports whether the snapshot is not recorded if no file has changed since
// another one: that has the same files already and can be gone back to, and no new one was
// asked for.
func (w WantedSnapshot) Redundant(s State, since dormouse.SnapshotID) bool {
	switch w.Reason {
	case dormouse.SnapshotAsked:
		return false
	case dormouse.SnapshotSealing:
		return s.Workspace.Newest == s.Workspace.Base
	}
	return since == s.Workspace.Newest && !s.newestDeleted()
}

// TooLarge reports whether a chain of layers is more than the workspace may be sealed as:
// the volume holds a session to its disk limit, and layers do not.
func (w WantedSnapshot) TooLarge(s State, layers []dormouse.Layer) bool {
	if w.Reason != dormouse.SnapshotSealing || s.Environment.Limits.Disk <= 0 {
		return false
	}
	var bytes int64
	for _, l := range layers {
		bytes += l.Bytes
	}
	return bytes > s.Environment.Limits.Disk
}

// ChainSince is the layer chain that changes since a snapshot are added to. Only the newest
// snapshot and the one below the workspace can be built upon; without one the chain is empty.
func (s State) ChainSince(since dormouse.SnapshotID) ([]dormouse.Layer, error) {
	switch since {
	case "":
		return nil, nil
	case s.Workspace.Newest:
		return s.Workspace.Chain, nil
	case s.Workspace.Base:
		return s.Workspace.Layers, nil
	}
	return nil, fmt.Errorf("what changed since %s is of no use", since)
}
