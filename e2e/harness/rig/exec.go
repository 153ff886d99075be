package rig

import (
	"context"
	"fmt"
	"net/http"

	"github.com/dormouse-run/dormouse/client"
)

// Exec is how a command of a person ended, as the server answered.
type Exec client.Exec

// Ran reports whether it ended by itself.
func (e Exec) Ran() bool { return !e.Unknown && !e.Killed && !e.TimedOut && e.Error == "" }

// Asked is a command, what it does if it ends by itself, and how the server answered it.
type Asked struct {
	ClientID string
	Command  string
	Prints   string
	Exit     int
	Answer   Exec
}

// Ask sends a command under its id until it is answered.
func (s *Session) Ask(ctx context.Context, a Asked) (Exec, error) {
	err := s.Repeat(ctx, http.MethodPost, s.Path("/execs"), map[string]any{"id": a.ClientID, "command": a.Command}, &a.Answer)
	if err != nil {
		return a.Answer, fmt.Errorf("ask for command %q: %w", a.ClientID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, a)
	return a.Answer, nil
}

// Asked lists the commands that were answered.
func (s *Session) Asked() []Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Asked(nil), s.asked...)
}
