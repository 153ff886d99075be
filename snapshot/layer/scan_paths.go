//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// scanPaths returns the entries that a directory has at the paths of a view, including
// what no layer carries. However much else is in the directory, it takes no more memory
// than the view, whose paths it shares.
func scanPaths(ctx context.Context, in root, view []layerEntry) (Index, error) {
	a := pathScan{root: in}
	defer a.leave(0)
	for _, p := range view {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if below(a.absent, p.Path) {
			continue
		}
		if err := a.look(p); err != nil {
			return nil, fmt.Errorf("%.200q: %w", p.Path, err)
		}
	}
	return a.found, nil
}

type pathScan struct {
	root   root
	stack  []heldDir // the directories above the current path
	absent string    // the last path that is a directory in the view only
	found  Index
}

// heldDir is a directory above the current path. It is open unless too many are.
type heldDir struct {
	path string
	dir  beneath.Dir
}

// look visits one path. Paths come in order.
func (a *pathScan) look(p layerEntry) error {
	if p.Path == "." {
		return a.enter(p)
	}
	n := len(a.stack)
	for n > 0 && a.stack[n-1].path != parent(p.Path) {
		n--
	}
	a.leave(n)
	if n == 0 {
		return errors.New("it is in no directory")
	}
	top := &a.stack[n-1]
	if top.dir.File == nil {
		dir, err := a.root.Dir.Dir(top.path)
		if err != nil {
			return err
		}
		top.dir = dir
	}
	e, err := statAt(top.dir, base(p.Path))
	if errors.Is(err, unix.ENOENT) {
		a.absent = p.Path
		return nil
	}
	if err != nil {
		return err
	}
	if e.Kind == Dir {
		return a.enter(p)
	}
	e.Path, a.absent = p.Path, p.Path
	a.found = append(a.found, e)
	return nil
}

// enter visits a directory, and descends into it if it is one in the view, too.
func (a *pathScan) enter(p layerEntry) error {
	dir, err := a.open(p.Path)
	if errors.Is(err, unix.EXDEV) { // it is a mount point
		a.found, a.absent = append(a.found, Entry{Path: p.Path, Kind: Unsupported}), p.Path
		return nil
	}
	if err != nil {
		return err
	}
	var at unix.Stat_t
	err = unix.Fstat(int(dir.Fd()), &at)
	e := entryAt(p.Path, &at)
	if err == nil {
		e.Opaque, err = isOpaque(dir.File)
	}
	if err != nil || p.Kind != Dir {
		_ = dir.Close()
	}
	if err != nil {
		return err
	}
	a.found = append(a.found, e)
	if p.Kind != Dir {
		return nil
	}
	if n := len(a.stack) - maxOpenDirs; n >= 0 && a.stack[n].dir.File != nil {
		_ = a.stack[n].dir.Close()
		a.stack[n].dir = beneath.Dir{}
	}
	a.stack = append(a.stack, heldDir{path: p.Path, dir: dir})
	return nil
}

func (a *pathScan) open(path string) (beneath.Dir, error) {
	if path == "." {
		return a.root.Dir.Dir(".")
	}
	return a.stack[len(a.stack)-1].dir.Dir(base(path))
}

// leave closes all directories of the stack but the first n.
func (a *pathScan) leave(n int) {
	for _, w := range a.stack[n:] {
		if w.dir.File != nil {
			_ = w.dir.Close()
		}
	}
	a.stack = a.stack[:n]
}
