package session

import (
	"context"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// family is the sessions as actors know them, with what only actors may ask for.
type family struct{ *Sessions }

// CreateChild writes the first events of a child, fenced by its parent's epoch.
func (f family) CreateChild(ctx context.Context, by dormouse.Actor, c dormouse.Created, parent *dormouse.Fence) (dormouse.SessionRow, error) {
	return f.create(ctx, by, c, parent)
}

// Manifest reads all of a snapshot from the log.
func (f family) Manifest(ctx context.Context, id dormouse.SessionID, p law.Point) (dormouse.Snapshot, error) {
	return f.manifest(ctx, id, p)
}

// KeepReplaced sees to it that a snapshot has the present files of a session, and returns
// which, or none if there are no files, and the session as it is then.
func (f family) KeepReplaced(ctx context.Context, state law.State, by dormouse.Actor) (dormouse.SnapshotID, law.State, error) {
	return f.keepReplaced(ctx, state, by)
}

// PrepareSwap fetches the files of a snapshot for the next workspace of a session.
func (f family) PrepareSwap(ctx context.Context, s law.State, m dormouse.Snapshot, reason string, origin dormouse.SessionID) (dormouse.WorkspaceSwap, error) {
	return f.prepare(ctx, s, m, reason, origin)
}

// ReleaseSwap gives back what was fetched for a swap that was refused.
func (f family) ReleaseSwap(ctx context.Context, id dormouse.SessionID, swap dormouse.WorkspaceSwap) {
	f.unprepare(ctx, id, swap)
}
