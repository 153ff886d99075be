package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// restorer gives a session the files that it had before.
type restorer interface {
	Restore(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, snapshot dormouse.SnapshotID, how session.RestoreOptions) (dormouse.WorkspaceSwap, error)
	Revert(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, prompt dormouse.EventID, how session.RestoreOptions) (dormouse.WorkspaceSwap, error)
}

// snapshotReader reads the files in snapshots.
type snapshotReader interface {
	Diff(ctx context.Context, from *session.SnapshotAt, to session.SnapshotAt) (d session.Difference, before, now dormouse.Snapshot, err error)
	Export(ctx context.Context, id dormouse.SessionID, snapshot dormouse.SnapshotID, name string, w io.Writer) error
}

type restoreRequest struct {
	Snapshot dormouse.SnapshotID `json:"snapshot"`
	History  bool                `json:"history"`
	Discard  bool                `json:"discard"`
}

func (s *Server) restore(c call) error {
	var req restoreRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	if req.Snapshot == "" {
		return fmt.Errorf("field \"snapshot\" says which one to go back to: %w", dormouse.ErrInvalid)
	}
	p, err := snapshotID(string(req.Snapshot))
	if err != nil {
		return err
	}
	return s.goBack(c, req.History, func(ctx context.Context, id dormouse.SessionID) (dormouse.WorkspaceSwap, error) {
		return s.Sessions.Restore(ctx, id, c.Who.Actor, p, session.RestoreOptions{History: req.History, Discard: req.Discard})
	})
}

type revertRequest struct {
	Prompt  dormouse.EventID `json:"prompt"`
	Discard bool             `json:"discard"`
}

func (s *Server) revert(c call) error {
	var req revertRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	if req.Prompt == "" {
		return fmt.Errorf("field \"prompt\" says which one to go back to before: %w", dormouse.ErrInvalid)
	}
	if req.Prompt.Validate() != nil {
		return fmt.Errorf("prompt %q: %w", shorten(string(req.Prompt)), dormouse.ErrNotFound)
	}
	return s.goBack(c, true, func(ctx context.Context, id dormouse.SessionID) (dormouse.WorkspaceSwap, error) {
		return s.Sessions.Revert(ctx, id, c.Who.Actor, req.Prompt, session.RestoreOptions{Discard: req.Discard})
	})
}

// goBack answers when the session has other files. Layers that are elsewhere may take
// long to come.
func (s *Server) goBack(c call, history bool, swap func(context.Context, dormouse.SessionID) (dormouse.WorkspaceSwap, error)) error {
	looking, cancel := c.Context()
	defer cancel()
	id, err := s.own(looking, c)
	if err != nil {
		return err
	}
	if err := checkConnected(c); err != nil {
		return err
	}
	answering := s.withoutDeadlines(c)
	defer answering()
	done, err := swap(c.R.Context(), id)
	if err != nil {
		return err
	}
	answering()
	return c.Answer(http.StatusOK, Restored{Session: id, Snapshot: done.Snapshot, Workspace: done.Number, History: history, Replaced: done.Replaced})
}

// diffSnapshots compares a snapshot with another, of the same session or of a second
// one, or with the one before it.
func (s *Server) diffSnapshots(c call) error {
	q, id, p, err := s.snapshotOfRequest(c, "to", "with")
	if err != nil {
		return err
	}
	answer := Diff{With: dormouse.SessionID(q.Get("with"))}
	to := session.SnapshotAt{Session: id, Snapshot: p}
	var from *session.SnapshotAt
	if q.Has("to") || q.Has("with") {
		first := to
		from, to.Snapshot = &first, ""
	}
	if q.Has("with") {
		looking, cancel := c.Context()
		with, err := c.Own(looking, s.Sessions, answer.With)
		cancel()
		if err != nil {
			return err
		}
		to.Session = with
	}
	if q.Has("to") {
		if to.Snapshot, err = snapshotID(q.Get("to")); err != nil {
			return err
		}
	}
	if err := checkConnected(c); err != nil {
		return err
	}
	answering := s.withoutDeadlines(c)
	defer answering()
	d, before, now, err := s.Sessions.Diff(c.R.Context(), from, to)
	if err != nil {
		return err
	}
	answer.From, answer.To, answer.Difference = before.ID, now.ID, d
	answering()
	return c.Answer(http.StatusOK, answer)
}

// exportSnapshot streams a snapshot as a container image. What goes wrong after the
// first byte cuts the answer off, so that no part of it looks complete.
func (s *Server) exportSnapshot(c call) error {
	q, id, p, err := s.snapshotOfRequest(c, "name")
	if err != nil {
		return err
	}
	if err := checkConnected(c); err != nil {
		return err
	}
	answering := s.withoutDeadlines(c)
	defer answering()
	ctx := c.R.Context()
	err = s.Sessions.Export(ctx, id, p, q.Get("name"), &tarWriter{c: c, control: http.NewResponseController(c.W)})
	if err != nil && c.Status != 0 {
		s.Logger.WarnContext(context.WithoutCancel(ctx), "image cut off", "request", c.ID, "error", err)
		panic(http.ErrAbortHandler)
	}
	return err
}
