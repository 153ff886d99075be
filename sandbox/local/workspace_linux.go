package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

func (f files) marks(number uint64) layer.Baselines {
	return layer.Baselines{Dir: f.marksAt(number), Of: f.at(number)}
}

// build makes a workspace of its layers, atomically.
func (f files) build(ctx context.Context, w sandbox.Workspace) error {
	at := f.at(w.Number)
	temp := at + ".new" // no sandbox has started with what is there already
	if err := errors.Join(os.RemoveAll(at), os.RemoveAll(temp), os.Mkdir(temp, 0o700)); err != nil {
		return fmt.Errorf("make workspace %d: %w", w.Number, err)
	}
	if err := layer.Flatten(ctx, w.Layers, layer.Unlimited, temp); err != nil {
		return fmt.Errorf("make workspace %d: %w", w.Number, errors.Join(err, os.RemoveAll(temp)))
	}
	if err := os.Rename(temp, at); err != nil {
		return fmt.Errorf("make workspace %d: %w", w.Number, err)
	}
	crash.At(crash.WorkspaceMade)
	if w.Base == "" {
		return nil
	}
	index, _, err := layer.Scan(ctx, at, layer.Unlimited)
	if err != nil {
		return err
	}
	return f.marks(w.Number).Write(string(w.Base), index, "")
}
