//go:build linux

package layer

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// hideOthers adds what no layer carries as gone if it hides something below, which
// must not be seen instead. If it hides nothing, nor may a whiteout be there:
// overlayfs shows one in a directory that only one layer has.
func hideOthers(all Index, left []Entry, below []string) (Index, error) {
	var gone Index
	for _, e := range left {
		if e.Kind != Other || all.opaqueAbove(e.Path) {
			continue
		}
		hides, err := covered(below, e.Path)
		if err != nil {
			return nil, err
		}
		if hides {
			gone = append(gone, Entry{Path: e.Path, Kind: Gone})
		}
	}
	if len(gone) > 0 {
		all = append(all, gone...)
		slices.SortFunc(all, func(a, b Entry) int { return compare(a.Path, b.Path) })
	}
	return all, nil
}

// opaqueAbove reports whether a directory that a path is in hides what is below.
func (all Index) opaqueAbove(path string) bool {
	for path != "." {
		path = parent(path)
		if n, ok := all.find(path); ok && all[n].Opaque {
			return true
		}
	}
	return false
}

// find is where the entry of a path is.
func (all Index) find(path string) (int, bool) {
	return slices.BinarySearchFunc(all, path, func(e Entry, path string) int { return compare(e.Path, path) })
}

// covered reports whether layers, the lowest first, have something at a path.
func covered(layers []string, path string) (bool, error) {
	for _, dir := range slices.Backward(layers) {
		r, err := openRoot(dir)
		if err != nil {
			return false, err
		}
		var at unix.Stat_t
		err = r.in(path, func(dir int, name string) error { return unix.Fstatat(dir, name, &at, unix.AT_SYMLINK_NOFOLLOW) })
		_ = r.Close()
		switch {
		case err == nil:
			return entryAt(path, &at).Kind != Gone, nil
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
			return false, nil // a directory above it is something else in this layer
		case !errors.Is(err, unix.ENOENT):
			return false, err
		}
	}
	return false, nil
}
