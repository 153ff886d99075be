package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Snapshot is a session's workspace at one event.
type Snapshot struct {
	ID      dormouse.SnapshotID `json:"snapshot"`
	Session dormouse.SessionID  `json:"session"`
	Parent  dormouse.SnapshotID `json:"parent,omitempty"`
	Label   string              `json:"label,omitempty"`
	Reason  string              `json:"reason"`
	Taken   time.Time           `json:"taken"`
	// At is the seq of the event at which it was taken.
	At uint64 `json:"at"`
	// Midway says that it was taken during a turn, so that it has no conversation to restore.
	Midway bool `json:"midway,omitempty"`
	// Aside says that it was imported, and that the workspace does not descend from it.
	Aside bool `json:"aside,omitempty"`
	// Newest says that it is the one that the session goes on from.
	Newest     bool   `json:"newest,omitempty"`
	Workspace  uint64 `json:"workspace"`
	Generation uint64 `json:"generation,omitempty"`
	// Bytes and Entries count the files in all layers, including those that a later
	// layer hides. Size is the size of the layers in the blob store, where snapshots share
	// layers. Depth is the number of layers.
	Bytes   int64 `json:"bytes"`
	Entries int   `json:"entries"`
	Size    int64 `json:"size"`
	Depth   int   `json:"depth"`
	// Layers and Left are only set for a single snapshot, not in lists.
	Layers  []dormouse.Layer `json:"layers,omitempty"`
	Left    []string         `json:"left,omitempty"`
	LeftOut int              `json:"left_out,omitempty"`
	// Ref is an authenticated reference to the snapshot, for programs.
	Ref json.RawMessage `json:"ref"`
}

// SnapshotOptions describe a new snapshot.
type SnapshotOptions struct {
	Label string `json:"label,omitempty"`
	// ID is the client's own and makes the request idempotent.
	ID string `json:"id,omitempty"`
}

// TakeSnapshot takes a snapshot of a session's workspace, and returns when it is complete. The
// sandbox keeps running, and a turn may be active.
func (c *Client) TakeSnapshot(ctx context.Context, id dormouse.SessionID, o SnapshotOptions) (made Snapshot, err error) {
	return made, c.wait(ctx, http.MethodPost, of(id, "snapshots"), o, &made)
}

// Snapshots is a page of snapshots, the newest first.
type Snapshots struct {
	Snapshots []Snapshot `json:"snapshots"`
	// Total is the number of snapshots on all pages.
	Total int `json:"total"`
	// Next is the cursor of the next page; empty when this is the last.
	Next dormouse.SnapshotID `json:"next,omitempty"`
}

// Snapshots lists the snapshots of a session that can be restored. A limit of 0 stands for
// 100; after is the last snapshot of the page before.
func (c *Client) Snapshots(ctx context.Context, id dormouse.SessionID, limit int, after dormouse.SnapshotID) (Snapshots, error) {
	return get[Snapshots](ctx, c, of(id, "snapshots"), query("limit", number(limit), "after", string(after)))
}

// Snapshot returns a snapshot with its layers.
func (c *Client) Snapshot(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID) (Snapshot, error) {
	return get[Snapshot](ctx, c, of(id, "snapshots", string(snapshot)), nil)
}

// DeleteSnapshot deletes a snapshot. It is idempotent.
func (c *Client) DeleteSnapshot(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID) error {
	return c.Call(ctx, http.MethodDelete, of(id, "snapshots", string(snapshot)), nil, nil)
}

// PruneOptions say which snapshots are deleted: the oldest if there are more than Keep, and
// those older than OlderThan.
type PruneOptions struct {
	Keep      int
	OlderThan time.Duration
	// DryRun deletes nothing, and returns what would be deleted.
	DryRun bool
}

// MarshalJSON writes a request.
func (o PruneOptions) MarshalJSON() ([]byte, error) {
	var older string
	if o.OlderThan > 0 {
		older = o.OlderThan.String()
	}
	return json.Marshal(struct {
		Keep      int    `json:"keep"`
		OlderThan string `json:"older_than,omitempty"`
		DryRun    bool   `json:"dry_run"`
	}{o.Keep, older, o.DryRun})
}

// Pruned lists the snapshots that were deleted, or would be.
type Pruned struct {
	Snapshots []dormouse.SnapshotID `json:"snapshots"`
	DryRun    bool                  `json:"dry_run,omitempty"`
}

// PruneSnapshots deletes old snapshots. It keeps the newest, and those that the workspace
// is layered over.
func (c *Client) PruneSnapshots(ctx context.Context, id dormouse.SessionID, o PruneOptions) (gone Pruned, err error) {
	return gone, c.Call(ctx, http.MethodPost, of(id, "snapshots", "prune"), o, &gone)
}

// ExportSnapshot returns a snapshot as a container image in a tar. If name is not empty, it
// is the name that the image has where it is loaded.
func (c *Client) ExportSnapshot(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID, name string) (io.ReadCloser, error) {
	res, err := c.Do(ctx, http.MethodGet, of(id, "snapshots", string(snapshot), "export")+"?"+query("name", name).Encode(), nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// ImportSnapshot adds a container image to a session as a snapshot. The workspace does not
// change.
func (c *Client) ImportSnapshot(ctx context.Context, id dormouse.SessionID, o SnapshotOptions, image Tar) (made Snapshot, err error) {
	path := of(id, "snapshots", "import") + "?" + query("label", o.Label, "id", o.ID).Encode()
	return made, c.wait(ctx, http.MethodPost, path, image, &made)
}

// Imported is a session that ImportSession created, and the snapshot of its first files.
type Imported struct {
	Row
	Snapshot dormouse.SnapshotID `json:"snapshot"`
}

// ImportSession creates a session with the files of a container image. It has no parent and
// no first prompt.
func (c *Client) ImportSession(ctx context.Context, session CreateOptions, o SnapshotOptions, image Tar) (made Imported, err error) {
	said, err := json.Marshal(session)
	if err != nil {
		return made, err
	}
	q := query("label", o.Label, "id", o.ID)
	if string(said) != "{}" {
		q.Set("session", string(said))
	}
	return made, c.wait(ctx, http.MethodPost, "/api/sessions/import?"+q.Encode(), image, &made)
}
