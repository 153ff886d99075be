package inside

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/dormouse-run/dormouse/runner"
)

// treeGetter sends a tree.
type treeGetter struct {
	root *os.Root // the directory it lies in
	name string   // its name there, "." for the directory itself
}

// getTree makes a tree ready to be sent.
func (r *Runner) getTree(name string) (endpoint, error) {
	full, err := r.resolve(name)
	if err != nil {
		return nil, err
	}
	at, err := os.Stat(full)
	if err != nil {
		return nil, fmt.Errorf("get tree: %w", err)
	}
	g := &treeGetter{name: "."}
	if !at.IsDir() {
		if err := regular(full, at); err != nil {
			return nil, fmt.Errorf("get tree: %w", err)
		}
		if full, err = filepath.EvalSymlinks(full); err != nil {
			return nil, fmt.Errorf("get tree: %w", err)
		}
		full, g.name = filepath.Dir(full), filepath.Base(full)
	}
	if g.root, err = os.OpenRoot(full); err != nil {
		return nil, fmt.Errorf("get tree: %w", err)
	}
	return g, nil
}

func (g *treeGetter) release() { _ = g.root.Close() }

func (g *treeGetter) serve(_ context.Context, c *net.UnixConn) {
	var listening sync.WaitGroup
	listening.Go(func() {
		discard(c)
		_ = c.Close() // the rest is not needed
	})
	s, err := runner.PackTree(c, g.root, g.name)
	if err != nil {
		s.Error = err.Error()
	}
	if _, err := c.Write(s.Encode()); err == nil {
		_ = c.CloseWrite()
	} else {
		_ = c.Close()
	}
	listening.Wait()
}
