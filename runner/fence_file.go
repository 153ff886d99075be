package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// FenceFile is the file in which a driver keeps the newest fence of a sandbox: on the
// host, out of the sandbox's reach. The host does not trust the epochs that a runner
// reports, because code in the sandbox may impersonate the runner.
//
// The file is raised before the runner is bound, so that it is never behind. Callers
// hold the lock of the session.
type FenceFile string

// Known returns the newest fence, zero if there is none yet.
func (p FenceFile) Known() (Fence, error) {
	b, err := os.ReadFile(string(p))
	if errors.Is(err, fs.ErrNotExist) {
		return Fence{}, nil
	}
	if err != nil {
		return Fence{}, fmt.Errorf("read the known fence: %w", err)
	}
	// The file is renamed into place and not synced: only a crash of the machine can
	// corrupt it, and that also ended every server that it would have fenced off.
	var f Fence
	if json.Unmarshal(b, &f) != nil {
		return Fence{}, nil //nolint:nilerr // corrupt, as said
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
