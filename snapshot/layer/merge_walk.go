//go:build linux

package layer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// Merge merges layers, the lowest first, with nothing below them, into one layer in an
// empty directory. Files are copied. They are not hard-linked to those of the layers,
// because overlayfs would then change the inode number of a file on copy-up while programs
// have it open, and a sandbox with such a file could not be checkpointed.
//
// The limits are of the result. They may be unlimited, as what the layers of a chain hold
// together is; see mergedWalk for what that costs.
func Merge(ctx context.Context, dirs []string, l Limits, to string) error {
	if err := merge(ctx, dirs, l, to); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	return nil
}

func merge(ctx context.Context, dirs []string, l Limits, to string) error {
	layers, err := openRoots(dirs)
	if err != nil {
		return err
	}
	defer closeAll(layers)
	dst, err := openRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = dst.Close() }()
	from, space := make([]copier, len(layers)), SpaceIn(to)
	for n, src := range layers {
		from[n] = copier{src: src, dst: dst, space: space, links: make(map[uint64]string)}
	}
	entries, bytes, paths := 0, int64(0), int64(0)
	return mergedWalk{
		layers: layers,
		enter: func(p layerEntry) error {
			entries++
			bytes += p.Size
			paths += int64(len(p.Path))
			if err := l.Check(entries, bytes, paths); err != nil {
				return err
			}
			return from[p.layer].copyStable(p.Entry)
		},
		leave: dst.setTime, // once everything is in it
	}.walk(ctx)
}

// mergedWalk walks the merged view of layers, the lowest first, with nothing below them, in
// the order of an index. It does not hold the whole view: a chain may have any number of
// layers, each of which is within its limits. It holds the names in the directories above
// the current one, without their paths. Each name is an inode in some layer, which takes
// several times as much disk as the name takes memory.
type mergedWalk struct {
	layers []root
	enter  func(layerEntry) error // called with each entry
	leave  func(Entry) error      // called with each directory after its entries
}

func (s mergedWalk) walk(ctx context.Context) error {
	if len(s.layers) == 0 {
		return nil
	}
	from := make([]int, 0, len(s.layers))
	for n := range s.layers {
		from = append(from, len(s.layers)-1-n)
	}
	return s.dir(ctx, ".", from)
}

// dir walks a directory. From are the layers in which it is visible, the topmost first.
func (s mergedWalk) dir(ctx context.Context, path string, from []int) error {
	e, err := s.layers[from[0]].stat(path)
	if err != nil {
		return fmt.Errorf("%.200q: %w", path, err)
	}
	if err := s.enter(layerEntry{e, from[0]}); err != nil {
		return fmt.Errorf("%.200q: %w", path, err)
	}
	names, err := s.names(path, from)
	if err != nil {
		return fmt.Errorf("%.200q: %w", path, err)
	}
	for _, n := range names {
		if err := cancelled(ctx); err != nil {
			return err
		}
		if err := s.name(ctx, join(path, n.name), from[n.top:]); err != nil {
			return err
		}
	}
	return s.leave(e)
}

// name walks one name of a directory, which the first of the layers has.
func (s mergedWalk) name(ctx context.Context, path string, from []int) error {
	e, err := s.layers[from[0]].stat(path)
	if err != nil {
		return fmt.Errorf("%.200q: %w", path, err)
	}
	switch e.Kind {
	case Whiteout, Unsupported:
		return nil
	case File, Symlink, Fifo:
		if err := s.enter(layerEntry{e, from[0]}); err != nil {
			return fmt.Errorf("%.200q: %w", path, err)
		}
		return nil
	case Dir:
	}
	in, err := s.visibleIn(path, from)
	if err != nil {
		return fmt.Errorf("%.200q: %w", path, err)
	}
	return s.dir(ctx, path, in)
}

// visibleIn returns those of some layers, the topmost first, whose directory at a path is
// not hidden by a higher one.
func (s mergedWalk) visibleIn(path string, from []int) ([]int, error) {
	var in []int
	for _, n := range from {
		e, err := s.layers[n].stat(path)
		switch {
		case errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return nil, err
		case e.Kind != Dir:
			return in, nil
		}
		in = append(in, n)
		dir, err := s.layers[n].openDir(path)
		if err != nil {
			return nil, err
		}
		hides, err := isOpaque(dir)
		if err = errors.Join(err, dir.Close()); err != nil || hides {
			return in, err
		}
	}
	return in, nil
}

// topmost is a name, and the topmost layer that has it.
type topmost struct {
	name string
	top  int
}

// names lists the names that layers have in a directory, in order.
func (s mergedWalk) names(path string, from []int) ([]topmost, error) {
	var all []topmost
	for i, n := range from {
		dir, err := s.layers[n].Dir.Dir(path)
		if err != nil {
			return nil, err
		}
		names, err := dir.Names(math.MaxInt)
		if err = errors.Join(err, dir.Close()); err != nil {
			return nil, err
		}
		for _, name := range names {
			all = append(all, topmost{name, i})
		}
	}
	slices.SortFunc(all, func(a, b topmost) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.top, b.top)) })
	return slices.CompactFunc(all, func(a, b topmost) bool { return a.name == b.name }), nil
}

// stat returns the entry at a path of a layer.
func (r root) stat(path string) (e Entry, err error) {
	err = r.withParent(path, func(dir int, name string) error {
		var at unix.Stat_t
		if err := unix.Fstatat(dir, name, &at, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		e = entryAt(path, &at)
		return nil
	})
	return e, err
}
