//go:build linux

package layer

import (
	"context"
	"slices"
)

// addWhiteouts adds what no layer carries as gone if it hides something below, which
// must not be seen instead. If it hides nothing, nor may a whiteout be there:
// overlayfs shows one in a directory that only one layer has.
func addWhiteouts(ctx context.Context, all Index, left []Entry, below []string) (Index, error) {
	if len(left) == 0 || len(below) == 0 {
		return all, nil
	}
	under, err := openRoots(below)
	if err != nil {
		return nil, err
	}
	defer closeAll(under)
	var gone Index
	for _, e := range left { // of which there may be as many as of anything
		if err := cancelled(ctx); err != nil {
			return nil, err
		}
		if e.Kind != Unsupported || all.opaqueAbove(e.Path) {
			continue
		}
		hides, err := visible(under, e.Path)
		if err != nil {
			return nil, err
		}
		if hides {
			gone = append(gone, Entry{Path: e.Path, Kind: Whiteout})
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
