package rest

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// opReader lists the ops of a session.
type opReader interface {
	Ops(ctx context.Context, id dormouse.SessionID, limit int) ([]dormouse.OpRecord, error)
}

// partialReader reads what is left of a session whose log this program cannot fold.
type partialReader interface {
	Refused(ctx context.Context, id dormouse.SessionID, why error) (session.Row, error)
	Remains(ctx context.Context, id dormouse.SessionID, damage error) (law.State, session.Row, error)
}

func workspaceOf(s law.State) Workspace {
	w := Workspace{Number: s.Workspace.Number, Base: s.Workspace.Base, Snapshots: len(s.Snapshots)}
	if c := law.Want(s).Snapshot; c != nil {
		w.Due = c.ID
	}
	return w
}

func (s *Server) showSession(c call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	state, row, err := s.peekAll(ctx, c)
	if errors.Is(err, dormouse.ErrNewerLog) {
		if row, err = s.Sessions.Refused(ctx, c.named(), err); err == nil {
			return c.Answer(http.StatusOK, Session{Row: row}) // what else there is to say of it only a newer program knows
		}
	}
	if err != nil {
		return err
	}
	made, err := s.Sessions.Created(ctx, state.Session)
	if errors.Is(err, dormouse.ErrDamaged) {
		row.Damage, err = cmp.Or(row.Damage, err.Error()), nil
	}
	if err != nil {
		return err
	}
	calls, err := s.gatedCalls(ctx, state)
	if err != nil && !errors.Is(err, dormouse.ErrDamaged) {
		return err
	}
	view := Session{
		Row: row, Agent: made.Agent, Recovery: made.Recovery, SleepAfter: made.SleepAfter.String(),
		Environment: state.Environment, Image: state.Image,
		Sandbox: sandboxOf(state),
		Threads: threadsOf(state, calls), Questions: questionsOf(state, calls), Wakeups: wakeupsOf(state), Children: childrenOf(state), Workspace: workspaceOf(state),
		Usage: dormouse.Total(state.Usage, state.CostMicros, state.Active),
	}
	if a := state.Attention(); a != nil {
		view.Attention = a.Reason
	}
	if state.Terminated != nil {
		view.Ended = state.Terminated.Reason
	}
	for _, t := range state.Threads {
		view.Queue += len(t.Queue)
	}
	return c.Answer(http.StatusOK, view)
}

// peekAll finds the session of a request, with its state and its row. Both are of the
// same instant, so that they do not contradict each other. Of a damaged session they are
// what can be read.
func (s *Server) peekAll(ctx context.Context, c call) (law.State, session.Row, error) {
	state, err := s.peek(ctx, c)
	if errors.Is(err, dormouse.ErrDamaged) {
		return s.Sessions.Remains(ctx, c.named(), err)
	}
	_, rows := law.Project(state, nil)
	return state, rows.Session, err
}

// ops lists the newest ops of a session.
func (s *Server) ops(c call) error {
	q, err := c.query("limit")
	if err != nil {
		return err
	}
	const usual, most = 50, 1000
	n, err := limit(q, usual, most)
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	ops, err := s.Sessions.Ops(ctx, row.Session, n)
	if err != nil {
		return err
	}
	if ops == nil {
		ops = []dormouse.OpRecord{}
	}
	return c.Answer(http.StatusOK, struct {
		Ops []dormouse.OpRecord `json:"ops"`
	}{ops})
}
