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

// MergeOver merges consecutive layers of a chain, the lowest first, into one layer in an
// empty directory. Below are the layers under them: whiteouts that hide something there
// stay. Files are copied, as by Merge. If the result is not within the limits, nothing is
// written.
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

// layerEntry is an entry and the number of its layer.
type layerEntry struct {
	Entry
	layer int
}

// checkLimits fails unless a layer of the entries is within the limits.
func checkLimits(all []layerEntry, l Limits) error {
	var bytes, paths int64
	seen := make(map[uint64]int) // files with several hard links, and their layers
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

// overlayBase puts a layer over lower entries, with nothing below them.
func overlayBase(lower []layerEntry, n int, upper Index) []layerEntry {
	return slices.DeleteFunc(overlay(lower, n, upper), func(p layerEntry) bool { return p.Kind == Whiteout })
}

// overlay puts a layer over lower entries, as if both lay over other layers.
func overlay(lower []layerEntry, n int, upper Index) []layerEntry {
	out := make([]layerEntry, 0, len(lower)+len(upper))
	hidden := "" // lower entries below this path are hidden
	add := func(p layerEntry) {
		if hidden == "" || !strings.HasPrefix(p.Path, hidden) {
			out = append(out, p)
		}
	}
	for _, e := range upper {
		for len(lower) > 0 && compare(lower[0].Path, e.Path) < 0 {
			add(lower[0])
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
			// What it replaced hid whatever lies below both.
			e.Opaque = e.Opaque || was.Opaque || was.Kind != 0 && was.Kind != Dir
		}
		out = append(out, layerEntry{e, n})
	}
	for _, p := range lower {
		add(p)
	}
	return out
}

// pruneWhiteouts drops whiteouts and opaque markers that hide nothing. They would do harm:
// overlayfs shows a whiteout as a device in a directory that only one layer has.
func pruneWhiteouts(below []string, all []layerEntry) ([]layerEntry, error) {
	under, err := openRoots(below)
	if err != nil {
		return nil, err
	}
	defer closeAll(under)
	out := all[:0]
	whole := "" // whiteouts in this directory hide nothing
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

// visible reports whether something is visible at a path in the merged view of layers.
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

// lookup returns the kind of what a layer has at a path, 0 if nothing, and whether it
// decides what is visible there, whatever lower layers have.
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

// statAt returns the entry of one name in a directory.
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

// writeMerged writes the merged layer.
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
	from, space := make([]copier, len(layers)), SpaceIn(to)
	for n, src := range layers {
		from[n] = copier{src: src, dst: dst, space: space, links: make(map[uint64]string)}
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

// copyStable copies an entry that must not change meanwhile.
func (c *copier) copyStable(e Entry) error {
	if err := c.entry(e); err != nil {
		return err
	}
	if len(c.changed) > 0 {
		return errors.New("it changed while it was read")
	}
	return nil
}

// linkBetween makes a hard link to a file of one layer in another, or in the same.
func linkBetween(src root, from string, dst root, to string) error {
	return src.withParent(from, func(dir int, name string) error {
		return dst.withParent(to, func(dir2 int, name2 string) error { return unix.Linkat(dir, name, dir2, name2, 0) })
	})
}
