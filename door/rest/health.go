package rest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/door"
)

type health struct {
	Status string `json:"status"`
}

// healthz says that the process is up, and nothing more.
func (s *Server) healthz(c call) error { return c.Answer(http.StatusOK, health{"ok"}) }

// readyz says whether traffic should come here. Strangers are told no more than that;
// why is in the log, and told to whoever has the token.
func (s *Server) readyz(c call) error {
	if s.Ready != nil {
		ctx, cancel := c.Context()
		defer cancel()
		_, known := s.Auth.Authenticate(c.R.Header.Get("Authorization"))
		look := s.Ready
		if !known {
			look = func(ctx context.Context) error { return s.ready.recent(ctx, s.Ready) }
		}
		if err := look(ctx); err != nil {
			no := &door.Refusal{Status: http.StatusServiceUnavailable, Type: "not_ready", Message: "not ready"}
			if known {
				no.Message = err.Error()
			}
			return fmt.Errorf("%w: %w", no, err)
		}
	}
	return c.Answer(http.StatusOK, health{"ready"})
}

// readiness is what strangers are told, who can ask as often as they like: it takes a
// write to the database to know.
type readiness struct {
	once sync.Once
	turn chan struct{} // holds one: whoever looks

	at  time.Time // with turn; when it was looked last
	err error     // with turn
}

// readyFor is how long what was found holds.
const readyFor = time.Second

// recent is what a look found not long ago, or finds now.
func (r *readiness) recent(ctx context.Context, look func(context.Context) error) error {
	r.once.Do(func() { r.turn = make(chan struct{}, 1) })
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.turn }()
	if r.at.IsZero() || time.Since(r.at) > readyFor {
		err := look(ctx)
		if ctx.Err() != nil {
			return err // it says more of who asked than of us
		}
		r.at, r.err = time.Now(), err
	}
	return r.err
}

func (s *Server) metrics(c call) error {
	if s.Metrics == nil {
		return &door.Refusal{Status: http.StatusNotFound, Type: "not_found", Message: "this server keeps no metrics"}
	}
	c.Status = http.StatusOK
	s.Metrics.ServeHTTP(c.W, c.R)
	return nil
}
