package rest

import (
	"fmt"
	"net/http"

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
		if err := s.Ready(ctx); err != nil {
			no := &door.Refusal{Status: http.StatusServiceUnavailable, Type: "not_ready", Message: "not ready"}
			if _, ok := s.Auth.Authenticate(c.R.Header.Get("Authorization")); ok {
				no.Message = err.Error()
			}
			return fmt.Errorf("%w: %w", no, err)
		}
	}
	return c.Answer(http.StatusOK, health{"ready"})
}

func (s *Server) metrics(c call) error {
	if s.Metrics == nil {
		return &door.Refusal{Status: http.StatusNotFound, Type: "not_found", Message: "this server keeps no metrics"}
	}
	c.Status = http.StatusOK
	s.Metrics.ServeHTTP(c.W, c.R)
	return nil
}
