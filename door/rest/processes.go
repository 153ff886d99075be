package rest

import (
	"context"
	"errors"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

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
