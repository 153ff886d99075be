package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// commander gives commands to sessions.
type commander interface {
	Do(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error
}

// command asks a session for something and answers with where it stands then.
func (s *Server) command(c call, v law.Verb) error { return s.commandOn(c, "", v) }

// commandOn is command for something that one thread of the session has.
func (s *Server) commandOn(c call, thread dormouse.ThreadID, v law.Verb) error {
	ctx, cancel := c.Context()
	defer cancel()
	id, err := s.own(ctx, c)
	if err != nil {
		return err
	}
	if err := s.Sessions.Do(ctx, id, c.Who.Actor, v); err != nil {
		return onThread(thread, err)
	}
	row, err := s.Sessions.Row(ctx, id)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, row)
}

// onThread says that it is the thread which is not there, if one was named.
func onThread(thread dormouse.ThreadID, err error) error {
	if thread != "" && errors.Is(err, dormouse.ErrNotFound) {
		return fmt.Errorf("thread %q: %w", shorten(string(thread)), err)
	}
	return err
}

// empty refuses a body where there is nothing to say.
type empty struct{}

func (s *Server) hibernate(c call) error { return s.plain(c, law.Hibernate{}) }
func (s *Server) wake(c call) error      { return s.plain(c, law.Wake{}) }
func (s *Server) archive(c call) error   { return s.plain(c, law.Archive{}) }

func (s *Server) plain(c call, v law.Verb) error {
	if err := c.decode(&empty{}); err != nil {
		return err
	}
	return s.command(c, v)
}

type interruptRequest struct {
	FlushQueue bool              `json:"flush_queue"`
	Thread     dormouse.ThreadID `json:"thread"`
}

func (s *Server) interrupt(c call) error {
	var req interruptRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	return s.commandOn(c, req.Thread, law.Interrupt{
		Thread: req.Thread, ID: dormouse.EventID(session.NewID(dormouse.EventPrefix)), Flush: req.FlushQueue,
	})
}

// threadRequest names the thread that is meant; the primary one if none is.
type threadRequest struct {
	Thread dormouse.ThreadID `json:"thread"`
}

func (s *Server) retry(c call) error {
	var req threadRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	return s.commandOn(c, req.Thread, law.Retry{Thread: req.Thread})
}

func (s *Server) continueTurn(c call) error {
	var req threadRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	return s.commandOn(c, req.Thread, law.Continue{Thread: req.Thread})
}

func (s *Server) terminate(c call) error {
	var req struct {
		Reason string `json:"reason"`
	}
	if err := c.decode(&req); err != nil {
		return err
	}
	const most = 1000
	if len(req.Reason) > most {
		return fmt.Errorf("field \"reason\" is over %d bytes: %w", most, dormouse.ErrTooLarge)
	}
	if req.Reason == "" {
		req.Reason = requested
	}
	return s.command(c, law.Terminate{Reason: req.Reason})
}

// requested is the reason for something that a client ended without giving one.
const requested = "requested"
