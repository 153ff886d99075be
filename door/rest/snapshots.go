package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/connlimit"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// snapshotter takes, lists and prunes snapshots.
type snapshotter interface {
	Snapshot(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask dormouse.SnapshotAsk) (dormouse.Snapshot, error)
	SnapshotTaken(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID) (session.TakenSnapshot, error)
	Snapshots(ctx context.Context, id dormouse.SessionID, after dormouse.SnapshotID, limit int) (page []session.TakenSnapshot, all int, err error)
	Prune(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, keep dormouse.Retention, dry bool) ([]dormouse.SnapshotID, error)
	Ref(id dormouse.SessionID, snapshot dormouse.SnapshotID) session.Ref
}

func (s *Server) snapshotOf(id dormouse.SessionID, k session.TakenSnapshot) Snapshot {
	v := Snapshot{
		ID: k.ID, Session: id, Parent: k.Parent, Label: k.Label, Reason: k.Reason, Taken: k.Taken, At: k.At, Midway: k.Midway, Aside: k.Aside,
		Newest: k.Newest, Workspace: k.Workspace, Generation: k.Generation, Depth: len(k.Layers), LeftOut: k.LeftOut, Ref: s.Sessions.Ref(id, k.ID).Bytes(),
	}
	for _, l := range k.Layers {
		v.Bytes += l.Bytes
		v.Entries += l.Entries
		v.Size += l.Size
	}
	return v
}

// fullSnapshot is a snapshot with its layers, and what it leaves out.
func (s *Server) fullSnapshot(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID) (Snapshot, error) {
	k, err := s.Sessions.SnapshotTaken(ctx, id, snapshot)
	if err != nil {
		return Snapshot{}, err
	}
	v := s.snapshotOf(id, k)
	v.Layers, v.Left = k.Layers, k.Left
	return v, nil
}

// snapshotID reads the id of a snapshot from a path or a parameter.
func snapshotID(name string) (dormouse.SnapshotID, error) {
	id := dormouse.SnapshotID(name)
	if id.Validate() != nil {
		return "", fmt.Errorf("snapshot %q: %w", shorten(name), dormouse.ErrNotFound)
	}
	return id, nil
}

// withoutDeadlines removes the deadlines of a request, and returns what arms the one
// for writing its answer.
func (s *Server) withoutDeadlines(c call) (answering func()) {
	control := http.NewResponseController(c.W)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	return func() { _ = control.SetWriteDeadline(time.Now().Add(s.WriteTimeout)) }
}

// checkConnected refuses to begin something expensive for a client that has left. The
// request's context ends too, but a moment later.
func checkConnected(c call) error {
	if connlimit.Left(c.R.Context()) {
		return context.Canceled
	}
	return nil
}

type snapshotRequest struct {
	ID    string `json:"id"`
	Label string `json:"label"`
}

// takeSnapshot takes a snapshot, and answers once it is durable.
func (s *Server) takeSnapshot(c call) error {
	var req snapshotRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	if err := checkName("id", req.ID); err != nil {
		return err
	}
	looking, cancel := c.Context()
	defer cancel()
	id, err := s.own(looking, c)
	if err != nil {
		return err
	}
	ask := dormouse.SnapshotAsk{ID: dormouse.SnapshotID(named(dormouse.SnapshotPrefix, id, req.ID)), Label: req.Label}
	if err := checkConnected(c); err != nil {
		return err
	}
	ctx, answering := c.R.Context(), s.withoutDeadlines(c)
	defer answering()
	if _, err := s.Sessions.Snapshot(ctx, id, c.Who.Actor, ask); err != nil {
		return err
	}
	v, err := s.fullSnapshot(ctx, id, ask.ID)
	if err != nil {
		return err
	}
	answering()
	return c.Answer(http.StatusOK, v)
}

// maxSnapshots is how many snapshots a list has at most.
const maxSnapshots = 100

func (s *Server) snapshots(c call) error {
	q, err := c.query("limit", "after")
	if err != nil {
		return err
	}
	n, err := limit(q, maxSnapshots, maxSnapshots)
	if err != nil {
		return err
	}
	var after dormouse.SnapshotID
	if q.Has("after") {
		if after, err = snapshotID(q.Get("after")); err != nil {
			return errUnknownCursor()
		}
	}
	ctx, cancel := c.Context()
	defer cancel()
	id, err := s.own(ctx, c)
	if err != nil {
		return err
	}
	page, total, err := s.Sessions.Snapshots(ctx, id, after, n+1)
	if after != "" && errors.Is(err, dormouse.ErrNotFound) {
		return errUnknownCursor()
	}
	if err != nil {
		return err
	}
	answer := Snapshots{Snapshots: []Snapshot{}, Total: total}
	for _, k := range page[:min(n, len(page))] {
		answer.Snapshots = append(answer.Snapshots, s.snapshotOf(id, k))
	}
	if len(page) > n {
		answer.Next = page[n-1].ID
	}
	return c.Answer(http.StatusOK, answer)
}

func errUnknownCursor() error {
	return fmt.Errorf("parameter \"after\" names no snapshot of the session: %w", dormouse.ErrInvalid)
}

// snapshotOfRequest reads which session and which snapshot a request is about.
func (s *Server) snapshotOfRequest(c call, known ...string) (url.Values, dormouse.SessionID, dormouse.SnapshotID, error) {
	q, err := c.query(known...)
	if err != nil {
		return nil, "", "", err
	}
	ctx, cancel := c.Context()
	defer cancel()
	id, err := s.own(ctx, c)
	if err != nil {
		return nil, "", "", err
	}
	p, err := snapshotID(c.R.PathValue("snapshot"))
	return q, id, p, err
}

func (s *Server) showSnapshot(c call) error {
	_, id, p, err := s.snapshotOfRequest(c)
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	v, err := s.fullSnapshot(ctx, id, p)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, v)
}

// deleteSnapshot deletes a snapshot. One that is not there is no error.
func (s *Server) deleteSnapshot(c call) error {
	_, id, p, err := s.snapshotOfRequest(c)
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	if err := s.Sessions.Do(ctx, id, c.Who.Actor, law.ForgetSnapshots{IDs: []dormouse.SnapshotID{p}}); err != nil {
		return err
	}
	c.NoContent()
	return nil
}

type pruneRequest struct {
	Keep      int    `json:"keep"`
	OlderThan string `json:"older_than"`
	DryRun    bool   `json:"dry_run"`
}

// retention is what is to be kept.
func (req pruneRequest) retention() (keep dormouse.Retention, err error) {
	keep.MaxCount = req.Keep
	if req.OlderThan != "" {
		if keep.MaxAge, err = time.ParseDuration(req.OlderThan); err != nil || keep.MaxAge <= 0 {
			return keep, fmt.Errorf("field \"older_than\" must be a duration such as \"72h\": %w", dormouse.ErrInvalid)
		}
	}
	if keep.MaxCount < 0 {
		return keep, fmt.Errorf("field \"keep\" cannot be negative: %w", dormouse.ErrInvalid)
	}
	return keep, nil
}

func (s *Server) pruneSnapshots(c call) error {
	var req pruneRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	keep, err := req.retention()
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	id, err := s.own(ctx, c)
	if err != nil {
		return err
	}
	gone, err := s.Sessions.Prune(ctx, id, c.Who.Actor, keep, req.DryRun)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, Pruned{Snapshots: append([]dormouse.SnapshotID{}, gone...), DryRun: req.DryRun})
}
