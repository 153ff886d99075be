//go:build linux

package snapshot

import (
	"context"
	"fmt"
	"os"
)

// Stage is a directory in which a layer is made.
type Stage struct {
	// Dir is where to make it, empty at first.
	Dir  string
	kept bool
}

// Stage makes a directory to make a layer in.
func (s *Store) Stage(ctx context.Context) (*Stage, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("stage a layer: %w", context.Cause(ctx))
	}
	dir, err := os.MkdirTemp(s.temp.Name(), "stage-")
	if err != nil {
		return nil, fmt.Errorf("stage a layer: %w", full(err))
	}
	return &Stage{Dir: dir}, nil
}

// Close removes what was not kept.
func (g *Stage) Close() error {
	if g.kept {
		return nil
	}
	if err := os.RemoveAll(g.Dir); err != nil {
		return fmt.Errorf("close a stage: %w", err)
	}
	return nil
}
