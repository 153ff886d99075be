package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox/local"
	"github.com/dormouse-run/dormouse/session"
)

// openSandboxes returns the driver. It is the only place that names one.
func openSandboxes(c config, log *slog.Logger) (*local.Driver, error) {
	data, err := filepath.Abs(c.Data)
	if err != nil {
		return nil, err
	}
	runner := c.Runner
	if runner == "" {
		if runner, err = placeRunner(data); err != nil {
			return nil, err
		}
	}
	if runner, err = filepath.Abs(runner); err != nil {
		return nil, err
	}
	instance, err := instanceOf(data)
	if err != nil {
		return nil, err
	}
	d, err := local.New(local.Options{Dir: filepath.Join(data, "sandbox"), Instance: instance, Runner: runner, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("open sandboxes: %w", err)
	}
	return d, nil
}

// instanceOf names the instance that uses a directory. A copy of it elsewhere is
// another one, and leaves the sandboxes of the original alone.
func instanceOf(data string) (string, error) {
	path, err := filepath.Abs(data)
	if err != nil {
		return "", err
	}
	const enough = 16
	return string(dormouse.DigestOf([]byte(path)))[len("sha256:"):][:enough], nil
}

// sweep stops what servers before us left running and no session owns.
func (s *server) sweep(ctx context.Context) {
	err := s.driver.Sweep(ctx, func(id dormouse.SessionID, generation uint64) bool {
		state, err := s.sessions.Peek(ctx, id)
		if err != nil {
			return !errors.Is(err, dormouse.ErrNotFound) // in doubt it stays
		}
		return state.Sandbox.Phase != session.SandboxCold && state.Sandbox.Generation == generation
	})
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "stray sandboxes not swept", "error", err)
	}
}
