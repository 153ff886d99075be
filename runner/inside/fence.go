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

// knownFence returns the newest fence that the runner with state in dir has
// met, zero if it has met none.
func knownFence(dir string) (runner.Fence, error) {
	b, err := os.ReadFile(filepath.Join(dir, fenceFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return runner.Fence{}, fmt.Errorf("read the known fence: %w", err)
	}
	var f runner.Fence
	if json.Unmarshal(b, &f) != nil { // it is not there, or was torn by the machine's own end
		return runner.Fence{}, nil //nolint:nilerr // as said
	}
	return f, nil
}

// keepFence makes f the known fence, whole or not at all.
func keepFence(dir string, f runner.Fence) error {
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
