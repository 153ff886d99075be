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

// healthz is the liveness probe.
func (s *Server) healthz(c call) error { return c.Answer(http.StatusOK, health{"ok"}) }

// readyz is the readiness probe. The reason is in the log, and in the answer to a
// client that sends the token; other clients get only the status.
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

// readiness caches the answer for clients without a token, which can ask as often as
// they like: a check costs a write to the database.
type readiness struct {
	once sync.Once
	turn chan struct{} // a semaphore of one: held during a check

	at  time.Time // guarded by turn; when it was checked last
	err error     // guarded by turn
}

// readyFor is how long a result is cached.
const readyFor = time.Second

// recent returns the cached result, or checks now.
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
			return err // the caller's timeout says nothing of the server
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
