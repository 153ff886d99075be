package session

import (
	"context"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// actorView is what actors see of Sessions, with methods that only actors may call.
type actorView struct{ *Sessions }

// CreateChild writes the first events of a child, fenced by its parent's epoch.
func (f actorView) CreateChild(ctx context.Context, by dormouse.Actor, c dormouse.Created, parent *dormouse.Fence) (dormouse.SessionRow, error) {
	return f.create(ctx, by, c, parent)
}

// ReadManifest reads all of a snapshot from the log.
func (f actorView) ReadManifest(ctx context.Context, id dormouse.SessionID, p law.Snapshot) (dormouse.Snapshot, error) {
	return f.readManifest(ctx, id, p)
}

// KeepReplaced makes sure that the present files of a session are in a snapshot. It
// returns which, or none if there are no files, and the session's state at that time.
func (f actorView) KeepReplaced(ctx context.Context, state law.State, by dormouse.Actor) (dormouse.SnapshotID, law.State, error) {
	return f.keepReplaced(ctx, state, by)
}

// PrepareSwap fetches the files of a snapshot for the next workspace of a session.
func (f actorView) PrepareSwap(ctx context.Context, s law.State, m dormouse.Snapshot, reason string, origin dormouse.SessionID) (dormouse.WorkspaceSwap, error) {
	return f.prepareSwap(ctx, s, m, reason, origin)
}

// ReleaseSwap gives back what was fetched for a swap that was refused.
func (f actorView) ReleaseSwap(ctx context.Context, id dormouse.SessionID, swap dormouse.WorkspaceSwap) {
	f.releaseSwap(ctx, id, swap)
}
