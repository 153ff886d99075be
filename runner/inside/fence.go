package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse/runner"
)

const fenceFile = "fence.json"

// readFence returns the newest fence that the runner with state in dir has accepted,
// zero if there is none.
func readFence(dir string) (runner.Fence, error) {
	b, err := os.ReadFile(filepath.Join(dir, fenceFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return runner.Fence{}, fmt.Errorf("read the known fence: %w", err)
	}
	var f runner.Fence
	if json.Unmarshal(b, &f) != nil { // missing, or corrupted by a crash of the machine
		return runner.Fence{}, nil //nolint:nilerr // as said
	}
	return f, nil
}

// writeFence replaces the known fence atomically.
func writeFence(dir string, f runner.Fence) error {
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
