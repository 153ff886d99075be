package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// FenceFile is where a driver keeps the newest fence that a sandbox was reached
// under: on the host, out of the sandbox's reach. What a runner says of epochs
// decides nothing on the host, for whoever is inside may play the runner.
//
// It is raised before the runner is told, so that it is never behind, and whoever
// uses it has the session locked.
type FenceFile string

// Known returns the newest fence, zero if there was none yet.
func (p FenceFile) Known() (Fence, error) {
	b, err := os.ReadFile(string(p))
	if errors.Is(err, fs.ErrNotExist) {
		return Fence{}, nil
	}
	if err != nil {
		return Fence{}, fmt.Errorf("read the known fence: %w", err)
	}
	// It takes its place whole and is not synced: only the machine's own end can
	// tear it, and that ended everyone whom it was to hold off.
	var f Fence
	if json.Unmarshal(b, &f) != nil {
		return Fence{}, nil //nolint:nilerr // torn, as said
	}
	return f, nil
}

// Check returns ErrStale if the same sandbox was reached under a newer epoch.
func (p FenceFile) Check(f Fence) error {
	known, err := p.Known()
	if err == nil && known.Same(f) && known.Epoch > f.Epoch {
		err = ErrStale
	}
	return err
}

// Raise makes f the newest fence, unless Check refuses it.
func (p FenceFile) Raise(f Fence) error {
	if err := p.Check(f); err != nil {
		return err
	}
	b, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(string(p)+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(string(p)+".new", string(p))
	}
	if err != nil {
		return fmt.Errorf("keep the fence: %w", err)
	}
	return nil
}
