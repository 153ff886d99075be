package client

import (
	"context"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// Restored is what a session goes on with.
type Restored struct {
	Session dormouse.SessionID `json:"session"`
	// Snapshot is the one whose files it has now, in the workspace of this number.
	Snapshot  dormouse.SnapshotID `json:"snapshot"`
	Workspace uint64              `json:"workspace"`
	// History says that the conversation went back too.
	History bool `json:"history"`
	// Replaced is the snapshot of the files that it had before: restoring it brings them
	// back. There is none if it had no files, or they were discarded.
	Replaced dormouse.SnapshotID `json:"replaced,omitempty"`
}

// RestoreOptions say what is restored.
type RestoreOptions struct {
	Snapshot dormouse.SnapshotID `json:"snapshot"`
	// History takes the conversation back to the same instant.
	History bool `json:"history"`
	// Discard keeps no snapshot of the files that are there.
	Discard bool `json:"discard"`
}

// Restore restores the files of a snapshot.
func (c *Client) Restore(ctx context.Context, id dormouse.SessionID, o RestoreOptions) (done Restored, err error) {
	return done, c.wait(ctx, http.MethodPost, of(id, "restore"), o, &done)
}

// RevertOptions say which prompt is reverted.
type RevertOptions struct {
	Prompt dormouse.EventID `json:"prompt"`
	// Discard keeps no snapshot of the files that are there.
	Discard bool `json:"discard"`
}

// Revert restores files and conversation to what they were before a prompt.
func (c *Client) Revert(ctx context.Context, id dormouse.SessionID, o RevertOptions) (done Restored, err error) {
	return done, c.wait(ctx, http.MethodPost, of(id, "revert"), o, &done)
}

// BranchOptions say where a branch begins.
type BranchOptions struct {
	// Snapshot is where it begins; the present if it is empty.
	Snapshot dormouse.SnapshotID `json:"snapshot,omitempty"`
	Title    string              `json:"title,omitempty"`
	// Processes says whether the branch gets a copy of the processes. If it is nil it does
	// only if the session is hibernated; if it is true the session is hibernated for it.
	Processes *bool `json:"processes,omitempty"`
}

// Branched is a session that was made from another.
type Branched struct {
	Row
	// Processes says that the branch has a copy of the processes.
	Processes bool `json:"processes"`
}

// Branch makes a session that goes on from a snapshot of another.
func (c *Client) Branch(ctx context.Context, id dormouse.SessionID, o BranchOptions) (made Branched, err error) {
	return made, c.wait(ctx, http.MethodPost, of(id, "branch"), o, &made)
}

// DiffOptions say what a snapshot is compared with. With nothing said it is the one before
// it.
type DiffOptions struct {
	// To is the second snapshot, and With the session that it is of, if that is another.
	To   dormouse.SnapshotID
	With dormouse.SessionID
}

// Diff is what differs between two snapshots.
type Diff struct {
	From dormouse.SnapshotID `json:"from,omitempty"`
	To   dormouse.SnapshotID `json:"to"`
	// With is the session that the second is of, if that is another.
	With dormouse.SessionID `json:"with,omitempty"`
	dormouse.Difference
}

// Diff compares two snapshots.
func (c *Client) Diff(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID, o DiffOptions) (d Diff, err error) {
	path := of(id, "snapshots", string(snapshot), "diff") + "?" + query("to", string(o.To), "with", string(o.With)).Encode()
	return d, c.wait(ctx, http.MethodGet, path, nil, &d)
}
