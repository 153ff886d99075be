package rest

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/visit"
)

// visitor reaches the sandboxes of sessions.
type visitor interface {
	Reach(ctx context.Context, id dormouse.SessionID, wake bool) (*visit.Visit, error)
}

const (
	// readyWithin bounds how long a visitor waits for a sandbox that is being
	// started, and askWithin how long for an answer from within.
	readyWithin = 90 * time.Second
	askWithin   = 20 * time.Second
)

var (
	errNotReady = fmt.Errorf("the sandbox was not ready in time; it may be soon: %w", dormouse.ErrConflict)
	errNoAnswer = fmt.Errorf("the sandbox did not answer in time: %w", dormouse.ErrConflict)
)

// visit reaches the sandbox of the session in the path of a request.
func (s *Server) visit(c call, wake bool) (*visit.Visit, error) {
	ctx, cancel := context.WithTimeoutCause(c.R.Context(), readyWithin, errNotReady)
	defer cancel()
	id, err := s.own(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.Sessions.Reach(ctx, id, wake)
}

// wakeParam reads whether a request may start a sandbox. The default is yes.
func wakeParam(q url.Values) (bool, error) {
	if !q.Has("wake") {
		return true, nil
	}
	return flag(q, "wake")
}

// askSandbox calls ask with a sandbox that is running. It wakes none.
func (s *Server) askSandbox(c call, ask func(context.Context, *visit.Visit) error) error {
	if _, err := c.query(); err != nil {
		return err
	}
	v, err := s.visit(c, false)
	if err != nil {
		return err
	}
	defer v.Close()
	ctx, cancel := context.WithTimeoutCause(c.R.Context(), askWithin, errNoAnswer)
	defer cancel()
	return ask(ctx, v)
}

// openStream opens a stream on a visit.
func openStream(c call, v *visit.Visit, what visit.Stream) (visit.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(c.R.Context(), askWithin, errNoAnswer)
	defer cancel()
	return v.Open(ctx, what)
}
