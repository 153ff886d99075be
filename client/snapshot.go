package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Snapshot is what a session's workspace was like at one event.
type Snapshot struct {
	ID      dormouse.SnapshotID `json:"snapshot"`
	Session dormouse.SessionID  `json:"session"`
	Parent  dormouse.SnapshotID `json:"parent,omitempty"`
	Label   string              `json:"label,omitempty"`
	Reason  string              `json:"reason"`
	Taken   time.Time           `json:"taken"`
	// At is the number of the event at which the files were so.
	At uint64 `json:"at"`
	// Midway says that a turn was at work, so that no conversation goes with it.
	Midway bool `json:"midway,omitempty"`
	// Aside says that it was imported and that the workspace does not descend from it.
	Aside bool `json:"aside,omitempty"`
	// Newest says that the session goes on from here.
	Newest     bool   `json:"newest,omitempty"`
	Workspace  uint64 `json:"workspace"`
	Generation uint64 `json:"generation,omitempty"`
	// Bytes and Entries are of the files in all layers, also of those that a later
	// layer hides; Size is what the layers take in the blob store, where snapshots share
	// what they have in common; Depth is how many layers there are.
	Bytes   int64 `json:"bytes"`
	Entries int   `json:"entries"`
	Size    int64 `json:"size"`
	Depth   int   `json:"depth"`
	// Layers and Left are only set for a single snapshot, not in lists.
	Layers  []dormouse.Layer `json:"layers,omitempty"`
	Left    []string         `json:"left,omitempty"`
	LeftOut int              `json:"left_out,omitempty"`
	// Ref is an authenticated reference to it, for programs.
	Ref json.RawMessage `json:"ref"`
}

// SnapshotOptions say what a snapshot is called.
type SnapshotOptions struct {
	Label string `json:"label,omitempty"`
	// ID is the client's own and makes the request idempotent.
	ID string `json:"id,omitempty"`
}

// TakeSnapshot takes a snapshot of a session's workspace as it is, and returns when it is
// there. The sandbox goes on; the agent may be at work.
func (c *Client) TakeSnapshot(ctx context.Context, id dormouse.SessionID, o SnapshotOptions) (made Snapshot, err error) {
	return made, c.wait(ctx, http.MethodPost, of(id, "snapshots"), o, &made)
}

// Snapshots is a page of them, the newest first.
type Snapshots struct {
	Snapshots []Snapshot `json:"snapshots"`
	// Total is how many there are in all.
	Total int `json:"total"`
	// Next is the cursor of the next page; empty when this is the last.
	Next dormouse.SnapshotID `json:"next,omitempty"`
}

// Snapshots lists the snapshots of a session that can be gone back to. A limit of 0 stands
// for 100; after is the snapshot that ended the page before.
func (c *Client) Snapshots(ctx context.Context, id dormouse.SessionID, limit int, after dormouse.SnapshotID) (Snapshots, error) {
	return get[Snapshots](ctx, c, of(id, "snapshots"), query("limit", number(limit), "after", string(after)))
}

// Snapshot returns all there is to know of a snapshot.
func (c *Client) Snapshot(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID) (Snapshot, error) {
	return get[Snapshot](ctx, c, of(id, "snapshots", string(snapshot)), nil)
}

// DeleteSnapshot deletes a snapshot. It is idempotent.
func (c *Client) DeleteSnapshot(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID) error {
	return c.Call(ctx, http.MethodDelete, of(id, "snapshots", string(snapshot)), nil, nil)
}

// PruneOptions say which snapshots go: the oldest of more than Keep, and those older than
// OlderThan.
type PruneOptions struct {
	Keep      int
	OlderThan time.Duration
	// DryRun only says which would go.
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

// Pruned is which snapshots were deleted, or would be.
type Pruned struct {
	Snapshots []dormouse.SnapshotID `json:"snapshots"`
	DryRun    bool                  `json:"dry_run,omitempty"`
}

// PruneSnapshots deletes old snapshots. The newest stays, and so does what the session's
// files lie over.
func (c *Client) PruneSnapshots(ctx context.Context, id dormouse.SessionID, o PruneOptions) (gone Pruned, err error) {
	return gone, c.Call(ctx, http.MethodPost, of(id, "snapshots", "prune"), o, &gone)
}

// ExportSnapshot reads a snapshot as a container image in one tar. The image is called
// name where it is loaded, if that is not empty.
func (c *Client) ExportSnapshot(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID, name string) (io.ReadCloser, error) {
	res, err := c.Do(ctx, http.MethodGet, of(id, "snapshots", string(snapshot), "export")+"?"+query("name", name).Encode(), nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// ImportSnapshot makes a snapshot of a session from a container image. The session goes on
// with the files it has.
func (c *Client) ImportSnapshot(ctx context.Context, id dormouse.SessionID, o SnapshotOptions, image Tar) (made Snapshot, err error) {
	path := of(id, "snapshots", "import") + "?" + query("label", o.Label, "id", o.ID).Encode()
	return made, c.wait(ctx, http.MethodPost, path, image, &made)
}

// Imported is a session that was made of an image, and the snapshot that its files
// are.
type Imported struct {
	Row
	Snapshot dormouse.SnapshotID `json:"snapshot"`
}

// ImportSession makes a session whose files are those of a container image. It has no
// parent and no first prompt.
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
