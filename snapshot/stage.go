//go:build linux

package snapshot

import (
	"context"
	"fmt"
	"os"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Stage is a directory in which a layer is made.
type Stage struct {
	// Dir is empty at first.
	Dir      string
	consumed bool
}

// Stage makes an empty directory to make a layer in.
func (s *Store) Stage(ctx context.Context) (*Stage, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("stage a layer: %w", context.Cause(ctx))
	}
	dir, err := os.MkdirTemp(s.temp.Name(), "stage-")
	if err != nil {
		return nil, fmt.Errorf("stage a layer: %w", layer.Full(err))
	}
	return &Stage{Dir: dir}, nil
}

// Close removes the directory unless Put has consumed it.
func (g *Stage) Close() error {
	if g.consumed {
		return nil
	}
	if err := beneath.At(g.Dir).Remove(); err != nil {
		return fmt.Errorf("close a stage: %w", err)
	}
	return nil
}

// Adds reports whether the layer in a stage changes anything over the layers below. Each
// layer has a root, and one that has nothing else adds nothing if the root below it is the
// same. A root that cannot be compared counts as changed.
func (s *Store) Adds(ctx context.Context, g *Stage, below []dormouse.Layer) (bool, error) {
	if len(below) == 0 {
		return true, nil
	}
	entries, err := os.ReadDir(g.Dir)
	if err != nil {
		return false, fmt.Errorf("read a stage: %w", err)
	}
	if len(entries) > 0 {
		return true, nil
	}
	top := below[len(below)-1].DiffID
	for hex, n := hexOf(top), minNameLen; n <= len(hex); n += nameLenStep {
		if is, err := s.identity(hex[:n]); err == nil && is.Content == top {
			same, err := layer.SameRoot(ctx, g.Dir, s.path(layersDir, hex[:n]))
			return err != nil || !same, nil //nolint:nilerr // it may not be there
		}
	}
	return true, nil
}
