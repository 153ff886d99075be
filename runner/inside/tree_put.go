package inside

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/dormouse-run/dormouse/runner"
)

// treePutter unpacks a tree.
type treePutter struct{ root *os.Root }

// putTree makes ready to unpack below path.
func (r *Runner) putTree(name string) (endpoint, error) {
	full, err := r.resolve(name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(full, 0o755); err != nil { //nolint:gosec // as mkdir makes them
		return nil, fmt.Errorf("put tree: %w", err)
	}
	root, err := os.OpenRoot(full)
	if err != nil {
		return nil, fmt.Errorf("put tree: %w", err)
	}
	return &treePutter{root}, nil
}

func (p *treePutter) release() { _ = p.root.Close() }

func (p *treePutter) serve(_ context.Context, c *net.UnixConn) {
	s, err := runner.UnpackTree(p.root, c)
	if err == nil {
		// What follows the end of a tar is padding.
		_, err = io.Copy(io.Discard, c)
	}
	if err != nil {
		s.Error = err.Error()
	}
	_, _ = c.Write(s.Encode()) // a client that does not get it takes the tree as incomplete
}
