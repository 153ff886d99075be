package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// Processes is what goes on in a session's sandbox.
type Processes struct {
	Session dormouse.SessionID `json:"session"`
	Phase   dormouse.Phase     `json:"phase"`
	Sandbox Sandbox            `json:"sandbox"`
	// IdleSince is when the session last had something to do; zero while it has.
	IdleSince time.Time `json:"idle_since,omitzero"`
	// Usage is there if a sandbox is.
	Usage *Used `json:"usage"`
}

// Used is what the processes of a sandbox use.
type Used struct {
	Processes  int     `json:"processes"`
	Memory     int64   `json:"memory_bytes"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Ops        int     `json:"ops"`
	Tasks      int     `json:"tasks"`
	Terminals  int     `json:"terminals"`
	// Active is when an op, a terminal or a port last did something, by the clock
	// of the sandbox.
	Active time.Time `json:"active,omitzero"`
}

// processes says what runs. It wakes nothing.
func (s *Server) processes(c call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	state, err := s.peek(ctx, c)
	if err != nil {
		return err
	}
	view := Processes{Session: state.Session, Phase: law.PhaseOf(state), Sandbox: sandboxOf(state)}
	if law.StatusOf(state) == dormouse.StatusIdle {
		view.IdleSince = state.IdleSince
	}
	if state.Sandbox.Phase == law.SandboxActive {
		if view.Usage, err = s.used(ctx, c); err != nil {
			return err
		}
	}
	return c.Answer(http.StatusOK, view)
}

// used asks a sandbox; nil if it went meanwhile.
func (s *Server) used(ctx context.Context, c call) (*Used, error) {
	v, err := s.visit(c, false)
	if errors.Is(err, dormouse.ErrConflict) || errors.Is(err, dormouse.ErrTerminated) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, askWithin, errNoAnswer)
	defer cancel()
	u, err := v.Usage(ctx)
	if err != nil {
		return nil, err
	}
	return &Used{
		Processes: u.Processes, Memory: u.RSS, CPUSeconds: u.CPU.Seconds(), Ops: u.Ops, Tasks: u.Tasks, Terminals: u.Terminals, Active: u.Active,
	}, nil
}

func sandboxOf(s law.State) Sandbox {
	b := Sandbox{Phase: string(s.Sandbox.Phase), Generation: s.Sandbox.Generation}
	if b.Phase == "" {
		b.Phase = "cold"
	}
	return b
}
