package v1

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// stateReader reads the state that a session has now, and its agent.
type stateReader interface {
	Peek(ctx context.Context, id dormouse.SessionID) (law.State, error)
	Remains(ctx context.Context, id dormouse.SessionID, damage error) (law.State, session.Row, error)
	AgentOf(ctx context.Context, state law.State) (dormouse.AgentConfig, error)
}

// named is the session that a request is about.
func (c call) named() dormouse.SessionID { return dormouse.SessionID(c.R.PathValue("session_id")) }

func (s *Server) row(ctx context.Context, c call) (session.Row, error) {
	return c.Row(ctx, s.Sessions, c.named())
}

func (s *Server) own(ctx context.Context, c call) (dormouse.SessionID, error) {
	return c.Own(ctx, s.Sessions, c.named())
}

func (s *Server) showSession(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	return s.answerSession(ctx, c, row.Session)
}

func (s *Server) answerSession(ctx context.Context, c call, id dormouse.SessionID) error {
	shown, err := s.sessionOf(ctx, id)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, shown)
}

// sessionOf is a session as it stands.
func (s *Server) sessionOf(ctx context.Context, id dormouse.SessionID) (Session, error) {
	state, err := s.Sessions.Peek(ctx, id)
	if errors.Is(err, dormouse.ErrDamaged) {
		state, _, err = s.Sessions.Remains(ctx, id, err)
	}
	if err == nil && state.Deleted {
		err = fmt.Errorf("session %s: %w", id, dormouse.ErrNotFound)
	}
	if err != nil {
		return Session{}, err
	}
	agent, err := s.Sessions.AgentOf(ctx, state)
	if err != nil && !errors.Is(err, dormouse.ErrDamaged) {
		return Session{}, err
	}
	return s.describe(state, agent), nil
}

const (
	usualPage = 20
	mostPage  = 100
)

// listResources lists what is mounted in a session's sandbox: nothing, since nothing
// can be yet.
func (s *Server) listResources(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	if _, err := s.own(ctx, c); err != nil {
		return err
	}
	return c.Answer(http.StatusOK, Page[struct{}]{Data: []struct{}{}})
}

func (s *Server) archiveSession(c call) error {
	return s.end(c, law.Archive{}, func(ctx context.Context, id dormouse.SessionID) error { return s.answerSession(ctx, c, id) })
}

// deleteSession removes a session that is not running.
func (s *Server) deleteSession(c call) error {
	return s.end(c, law.Delete{Resting: true}, func(_ context.Context, id dormouse.SessionID) error {
		return c.Answer(http.StatusOK, struct {
			Type string             `json:"type"`
			ID   dormouse.SessionID `json:"id"`
		}{"session_deleted", id})
	})
}

func (s *Server) end(c call, v law.Verb, answer func(context.Context, dormouse.SessionID) error) error {
	if err := c.nothing(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	if err := s.Sessions.Do(ctx, row.Session, c.Who.Actor, v); err != nil {
		return wrongState(err)
	}
	return answer(ctx, row.Session)
}
