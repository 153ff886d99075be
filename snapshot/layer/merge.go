//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// MergeOver makes one layer out of several that lie over others, the lowest of each
// first, in an empty directory. What hides something in the others is kept. Files are
// copied, as Merge does. Nothing is written if what comes of it is not within the
// limits.
func MergeOver(ctx context.Context, below, dirs []string, l Limits, to string) error {
	var all []layerEntry
	put := overlayBase
	if len(below) > 0 {
		put = overlay
	}
	for n, dir := range dirs {
		if ctx.Err() != nil {
			return fmt.Errorf("merge: %w", context.Cause(ctx))
		}
		entries, _, err := Scan(ctx, dir, l)
		if err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		all = put(all, n, entries)
		if err := checkLimits(all, l); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
	}
	all, err := pruneWhiteouts(below, all)
	if err == nil {
		err = writeMerged(ctx, dirs, all, to)
	}
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	return nil
}

// layerEntry is an entry and the layer that it is in.
type layerEntry struct {
	Entry
	layer int
}

// checkLimits fails unless entries are a layer that is within the limits.
func checkLimits(all []layerEntry, l Limits) error {
	var bytes, paths int64
	seen := make(map[uint64]int) // files with several names, and the layer they are in
	for _, p := range all {
		paths += int64(len(p.Path))
		if p.Kind != File {
			continue
		}
		if p.Links > 1 {
			if n, again := seen[p.Inode]; again && n == p.layer {
				continue
			}
			seen[p.Inode] = p.layer
		}
		bytes += p.Size
	}
	return l.Check(len(all), bytes, paths)
}

// overlayBase puts a layer over what there is, with nothing below.
func overlayBase(lower []layerEntry, n int, upper Index) []layerEntry {
	return slices.DeleteFunc(overlay(lower, n, upper), func(p layerEntry) bool { return p.Kind == Whiteout })
}

// overlay puts a layer over what there is, as if both lay over something else.
func overlay(lower []layerEntry, n int, upper Index) []layerEntry {
	out := make([]layerEntry, 0, len(lower)+len(upper))
	hidden := "" // what is below this path is gone
	keep := func(p layerEntry) {
		if hidden == "" || !strings.HasPrefix(p.Path, hidden) {
			out = append(out, p)
		}
	}
	for _, e := range upper {
		for len(lower) > 0 && compare(lower[0].Path, e.Path) < 0 {
			keep(lower[0])
			lower = lower[1:]
		}
		var was Entry
		if len(lower) > 0 && lower[0].Path == e.Path {
			was = lower[0].Entry
			lower = lower[1:]
		}
		inside := hidden != "" && strings.HasPrefix(e.Path, hidden)
		if was.Kind == Dir && !inside && (e.Kind != Dir || e.Opaque) {
			hidden = e.Path + "/"
		}
		if e.Kind == Dir && !inside {
			// What it took the place of hid what lies below both.
			e.Opaque = e.Opaque || was.Opaque || was.Kind != 0 && was.Kind != Dir
		}
		out = append(out, layerEntry{e, n})
	}
	for _, p := range lower {
		keep(p)
	}
	return out
}

// pruneWhiteouts leaves out what hides nothing. Nor would it be without harm: overlayfs
// shows a whiteout in a directory that only one layer has.
func pruneWhiteouts(below []string, all []layerEntry) ([]layerEntry, error) {
	under, err := openRoots(below)
	if err != nil {
		return nil, err
	}
	defer closeAll(under)
	out := all[:0]
	whole := "" // what is in this directory hides nothing
	for _, p := range all {
		inside := whole != "" && strings.HasPrefix(p.Path, whole)
		if p.Kind == Dir {
			if p.Opaque = p.Opaque && len(below) > 0; p.Opaque && !inside {
				whole = p.Path + "/"
			}
		}
		if p.Kind == Whiteout {
			there, err := visible(under, p.Path)
			if err != nil {
				return nil, fmt.Errorf("%.200q: %w", p.Path, err)
			}
			if inside || !there {
				continue
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// visible reports whether layers show something at a path.
func visible(layers []root, path string) (bool, error) {
	for _, r := range slices.Backward(layers) {
		kind, ends, err := r.lookup(path)
		if err != nil {
			return false, err
		}
		if ends {
			return kind != 0 && kind != Whiteout, nil
		}
	}
	return false, nil
}

// lookup says what a layer has at a path, 0 if nothing, and whether that is all
// there is, whatever lower layers have there.
func (r root) lookup(path string) (kind Kind, ends bool, err error) {
	at := r.Dir
	leave := func() {
		if at.File != r.File {
			_ = at.Close()
		}
	}
	defer func() { leave() }()
	for {
		name, rest, more := strings.Cut(path, "/")
		e, err := statAt(at, name)
		switch {
		case errors.Is(err, unix.ENOENT):
			return 0, ends, nil
		case err != nil:
			return 0, false, err
		case !more:
			return e.Kind, true, nil
		case e.Kind != Dir:
			return 0, true, nil
		}
		below, err := at.Dir(name)
		if err != nil {
			return 0, false, err
		}
		leave()
		at, path = below, rest
		hides, err := isOpaque(at.File)
		if err != nil {
			return 0, false, err
		}
		ends = ends || hides
	}
}

// statAt looks at one name of a directory.
func statAt(dir beneath.Dir, name string) (Entry, error) {
	var at unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &at, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Entry{}, err
	}
	return entryAt(name, &at), nil
}

func openRoots(dirs []string) ([]root, error) {
	roots := make([]root, 0, len(dirs))
	for _, dir := range dirs {
		r, err := openRoot(dir)
		if err != nil {
			closeAll(roots)
			return nil, err
		}
		roots = append(roots, r)
	}
	return roots, nil
}

func closeAll(roots []root) {
	for _, r := range roots {
		_ = r.Close()
	}
}

// writeMerged makes the merged layer.
func writeMerged(ctx context.Context, dirs []string, all []layerEntry, to string) error {
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
	from, room := make([]copier, len(layers)), SpaceIn(to)
	for n, src := range layers {
		from[n] = copier{src: src, dst: dst, space: room, links: make(map[uint64]string)}
	}
	made := make(Index, 0, len(all))
	for _, p := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := from[p.layer].copyStable(p.Entry); err != nil {
			return fmt.Errorf("%.200q: %w", p.Path, err)
		}
		made = append(made, p.Entry)
	}
	return setDirTimes(dst, made)
}

// copyStable gives the merged layer an entry.
func (c *copier) copyStable(e Entry) error {
	if err := c.entry(e); err != nil {
		return err
	}
	if len(c.changed) > 0 {
		return errors.New("somebody changes the layer")
	}
	return nil
}

// linkBetween gives what has a path in one layer another in the same, or in another.
func linkBetween(src root, from string, dst root, to string) error {
	return src.withParent(from, func(dir int, name string) error {
		return dst.withParent(to, func(dir2 int, name2 string) error { return unix.Linkat(dir, name, dir2, name2, 0) })
	})
}
