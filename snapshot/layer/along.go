//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// lookAlong is what a directory has of the paths of a view, what no layer carries
// included. However much else is in it, no more is held than the view itself, whose
// paths are shared.
func lookAlong(ctx context.Context, in root, view []placed) (Index, error) {
	a := along{root: in}
	defer a.leave(0)
	for _, p := range view {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if below(a.without, p.Path) {
			continue
		}
		if err := a.look(p); err != nil {
			return nil, fmt.Errorf("%.200q: %w", p.Path, err)
		}
	}
	return a.found, nil
}

type along struct {
	root    root
	way     []way  // the directories that the path at hand is in
	without string // the last path that is a directory in the view and not here
	found   Index
}

// way is a directory, which is open if there are not too many that are.
type way struct {
	path string
	dir  beneath.Dir
}

// look looks at one path, after all that come before it.
func (a *along) look(p placed) error {
	if p.Path == "." {
		return a.enter(p)
	}
	n := len(a.way)
	for n > 0 && a.way[n-1].path != parent(p.Path) {
		n--
	}
	a.leave(n)
	if n == 0 {
		return errors.New("it is in no directory")
	}
	top := &a.way[n-1]
	if top.dir.File == nil {
		dir, err := a.root.Dir.Dir(top.path)
		if err != nil {
			return err
		}
		top.dir = dir
	}
	e, err := statIn(top.dir, base(p.Path))
	if errors.Is(err, unix.ENOENT) {
		a.without = p.Path
		return nil
	}
	if err != nil {
		return err
	}
	if e.Kind == Dir {
		return a.enter(p)
	}
	e.Path, a.without = p.Path, p.Path
	a.found = append(a.found, e)
	return nil
}

// enter looks at a directory, and at what is in it if the view has one there, too.
func (a *along) enter(p placed) error {
	dir, err := a.open(p.Path)
	if errors.Is(err, unix.EXDEV) { // something else is mounted there
		a.found, a.without = append(a.found, Entry{Path: p.Path, Kind: Other}), p.Path
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
	if n := len(a.way) - maxHeld; n >= 0 && a.way[n].dir.File != nil {
		_ = a.way[n].dir.Close()
		a.way[n].dir = beneath.Dir{}
	}
	a.way = append(a.way, way{path: p.Path, dir: dir})
	return nil
}

func (a *along) open(path string) (beneath.Dir, error) {
	if path == "." {
		return a.root.Dir.Dir(".")
	}
	return a.way[len(a.way)-1].dir.Dir(base(path))
}

// leave closes all directories on the way but the first n.
func (a *along) leave(n int) {
	for _, w := range a.way[n:] {
		if w.dir.File != nil {
			_ = w.dir.Close()
		}
	}
	a.way = a.way[:n]
}
