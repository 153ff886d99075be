package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse"
)

// Validate refuses a fence that names no sandbox.
func (f Fence) Validate() error {
	if err := f.Session.Validate(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if f.Generation == 0 {
		return fmt.Errorf("fence has no generation: %w", dormouse.ErrInvalid)
	}
	return nil
}

// Same reports whether both fences are of one sandbox.
func (f Fence) Same(g Fence) bool {
	return f.Session == g.Session && f.Generation == g.Generation
}

// Bind returns what a runner that knew f knows once it is told g. Which
// sandbox it is, a runner is told from outside: a memory image wakes as
// another, and what it knew of epochs then means nothing.
func (f Fence) Bind(g Fence) (Fence, error) {
	if f.Same(g) && g.Epoch < f.Epoch && ChecksEpoch {
		return f, ErrStale
	}
	return g, nil
}

// Admit returns what a runner that knew f knows after a request under g.
func (f Fence) Admit(g Fence) (Fence, error) {
	if !f.Same(g) {
		return f, ErrForeign
	}
	return f.Bind(g)
}

const fenceFile = "fence.json"

// KnownFence returns the newest fence that the runner with state in dir has
// met, zero if it has met none.
func KnownFence(dir string) (Fence, error) {
	b, err := os.ReadFile(filepath.Join(dir, fenceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Fence{}, nil
	}
	if err != nil {
		return Fence{}, fmt.Errorf("read the known fence: %w", err)
	}
	// It takes its place whole and is not synced: only the machine's own end can
	// tear it, and that ended everyone whom it was to hold off.
	var f Fence
	if !json.Valid(b) {
		return f, nil
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return Fence{}, fmt.Errorf("read the known fence: %w", err)
	}
	return f, nil
}

// KeepFence makes f the known fence, whole or not at all.
func KeepFence(dir string, f Fence) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode the fence: %w", err)
	}
	name := filepath.Join(dir, fenceFile)
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		return fmt.Errorf("keep the fence: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("keep the fence: %w", err)
	}
	return nil
}
