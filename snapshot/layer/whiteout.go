//go:build linux

package layer

import (
	"context"
	"slices"
)

// addWhiteouts adds a whiteout for each skipped entry that hides something in the layers
// below, which must not become visible instead. Where nothing is hidden there must be no
// whiteout: overlayfs shows one in a directory that only one layer has.
func addWhiteouts(ctx context.Context, all Index, skipped []Entry, below []string) (Index, error) {
	if len(skipped) == 0 || len(below) == 0 {
		return all, nil
	}
	under, err := openRoots(below)
	if err != nil {
		return nil, err
	}
	defer closeAll(under)
	var whiteouts Index
	for _, e := range skipped { // there may be as many as of anything
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
			whiteouts = append(whiteouts, Entry{Path: e.Path, Kind: Whiteout})
		}
	}
	if len(whiteouts) > 0 {
		all = append(all, whiteouts...)
		slices.SortFunc(all, func(a, b Entry) int { return compare(a.Path, b.Path) })
	}
	return all, nil
}

// opaqueAbove reports whether a directory above a path is opaque.
func (all Index) opaqueAbove(path string) bool {
	for path != "." {
		path = parent(path)
		if n, ok := all.find(path); ok && all[n].Opaque {
			return true
		}
	}
	return false
}

// find returns the position of the entry of a path.
func (all Index) find(path string) (int, bool) {
	return slices.BinarySearchFunc(all, path, func(e Entry, path string) int { return compare(e.Path, path) })
}
