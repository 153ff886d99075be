package client

import (
	"context"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// Restored is the result of a restore or a revert.
type Restored struct {
	Session dormouse.SessionID `json:"session"`
	// Snapshot is the snapshot that was restored, Workspace the number of the new workspace.
	Snapshot  dormouse.SnapshotID `json:"snapshot"`
	Workspace uint64              `json:"workspace"`
	// History says that the conversation was taken back too.
	History bool `json:"history"`
	// Replaced is the snapshot of the files before the restore; restoring it undoes this
	// one. It is empty if there were no files or they were discarded.
	Replaced dormouse.SnapshotID `json:"replaced,omitempty"`
}

// RestoreOptions say what is restored.
type RestoreOptions struct {
	Snapshot dormouse.SnapshotID `json:"snapshot"`
	// History also takes the conversation back to the event of the snapshot.
	History bool `json:"history"`
	// Discard keeps no snapshot of the files that are there.
	Discard bool `json:"discard"`
}

// Restore replaces a session's files with those of a snapshot.
func (c *Client) Restore(ctx context.Context, id dormouse.SessionID, o RestoreOptions) (done Restored, err error) {
	return done, c.wait(ctx, http.MethodPost, of(id, "restore"), o, &done)
}

// RevertOptions say which prompt is reverted.
type RevertOptions struct {
	Prompt dormouse.EventID `json:"prompt"`
	// Discard keeps no snapshot of the files that are there.
	Discard bool `json:"discard"`
}

// Revert takes files and conversation back to the state before a prompt.
func (c *Client) Revert(ctx context.Context, id dormouse.SessionID, o RevertOptions) (done Restored, err error) {
	return done, c.wait(ctx, http.MethodPost, of(id, "revert"), o, &done)
}

// BranchOptions describe a branch.
type BranchOptions struct {
	// Snapshot is where the branch starts; if it is empty, the present.
	Snapshot dormouse.SnapshotID `json:"snapshot,omitempty"`
	Title    string              `json:"title,omitempty"`
	// Processes says whether the branch gets a copy of the running processes. For true the
	// session is hibernated first. Nil means true if it is hibernated already, else false.
	Processes *bool `json:"processes,omitempty"`
}

// Branched is the session that Branch created.
type Branched struct {
	Row
	// Processes says that the branch has a copy of the processes.
	Processes bool `json:"processes"`
}

// Branch creates a session that starts from a snapshot of another.
func (c *Client) Branch(ctx context.Context, id dormouse.SessionID, o BranchOptions) (made Branched, err error) {
	return made, c.wait(ctx, http.MethodPost, of(id, "branch"), o, &made)
}

// DiffOptions say what a snapshot is compared with; by default the one before it.
type DiffOptions struct {
	// To is the second snapshot, With its session if that is a different one.
	To   dormouse.SnapshotID
	With dormouse.SessionID
}

// Diff is the difference between two snapshots.
type Diff struct {
	From dormouse.SnapshotID `json:"from,omitempty"`
	To   dormouse.SnapshotID `json:"to"`
	// With is the session of the second snapshot, if that is a different one.
	With dormouse.SessionID `json:"with,omitempty"`
	dormouse.Difference
}

// Diff compares two snapshots.
func (c *Client) Diff(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID, o DiffOptions) (d Diff, err error) {
	path := of(id, "snapshots", string(snapshot), "diff") + "?" + query("to", string(o.To), "with", string(o.With)).Encode()
	return d, c.wait(ctx, http.MethodGet, path, nil, &d)
}
