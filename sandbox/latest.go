package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
)

// Latest is the file in which a driver notes the workspace that a sandbox of a session was
// started with last.
type Latest string

// Number is that of the workspace, 0 if none is noted.
func (l Latest) Number() (uint64, error) {
	raw, err := os.ReadFile(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read which workspace there is: %w", err)
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read which workspace there is: %w", err)
	}
	return n, nil
}

// Check refuses a workspace that is older than the latest one, or not valid. It returns the
// number of the latest.
func (l Latest) Check(w Workspace) (last uint64, err error) {
	last, err = l.Number()
	switch {
	case err != nil:
		return 0, err
	case w.Number < last:
		return last, fmt.Errorf("workspace %d, there is %d: %w", w.Number, last, runner.ErrStale)
	case w.Number == 0 && len(w.Layers) > 0:
		return last, fmt.Errorf("the first workspace lies over nothing: %w", dormouse.ErrInvalid)
	}
	return last, nil
}

// Record notes that a sandbox was started with a workspace.
func (l Latest) Record(number uint64) error {
	last, err := l.Number()
	if err != nil || last == number {
		return err
	}
	if err := atomicfile.Write(string(l), strconv.AppendUint(nil, number, 10), 0o600); err != nil {
		return fmt.Errorf("note which workspace there is: %w", err)
	}
	crash.At(crash.WorkspaceStarted)
	return nil
}
