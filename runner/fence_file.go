package runner

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
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
	known, err := p.read()
	return known.Fence, err
}

func (p FenceFile) read() (storedFence, error) {
	b, err := os.ReadFile(string(p))
	if errors.Is(err, fs.ErrNotExist) {
		return storedFence{}, nil
	}
	if err != nil {
		return storedFence{}, fmt.Errorf("read the known fence: %w", err)
	}
	// The file is renamed into place and not synced: only a crash of the machine can
	// corrupt it, and that also ended every server that it would have fenced off.
	var f storedFence
	if json.Unmarshal(b, &f) != nil {
		return storedFence{}, nil //nolint:nilerr // corrupt, as said
	}
	return f, nil
}

// storedFence is the newest fence as it is in its file.
type storedFence struct {
	Fence
	// By is the process that raised it. Every process has an epoch of its own, unless a
	// database was put back: the epochs that it has forgotten are given once more.
	By string `json:"by,omitempty"`
}

// thisProcess names this process among all that have raised a fence.
var thisProcess = sync.OnceValue(rand.Text)

// Check returns a *StaleError if the same sandbox was reached under a newer epoch.
func (p FenceFile) Check(f Fence) error {
	known, err := p.Known()
	if err == nil && known.Same(f) && known.Epoch > f.Epoch {
		err = &StaleError{Known: known}
	}
	return err
}

// Raise makes f the newest fence, unless Check refuses it, or another process had the
// same epoch.
func (p FenceFile) Raise(f Fence) error {
	if err := p.Check(f); err != nil {
		return err
	}
	known, err := p.read()
	if err != nil {
		return err
	}
	if known.Fence == f && known.By != "" && known.By != thisProcess() {
		return &StaleError{Known: f}
	}
	b, err := json.Marshal(storedFence{f, thisProcess()})
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
