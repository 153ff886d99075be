package snapshot

import (
	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Compaction is size-tiered: once there are fanIn layers of about the same size, they
// are merged into one, which belongs to the next tier.
const (
	fanIn = 4
	// unit is the weight of the lowest tier, and perName the weight of a name.
	unit    = 4 << 10
	perName = 1 << 10
)

func weight(l dormouse.Layer) int64 { return l.Bytes + int64(l.Entries)*perName }

// tier is the tier of a layer of some weight.
func tier(weight int64) int {
	n := 0
	for ; weight >= unit*fanIn; weight /= fanIn {
		n++
	}
	return n
}

// nextMerge finds the layers of a chain that are to be merged first, if any are. Whether
// a layer is merged depends only on those below it, so that a chain that grows is merged
// as it was before. Smaller layers below a larger one are merged into it, which costs no
// more than the larger one holds. A layer is merged into a larger one only together with
// others of its own tier. So the base of a chain is not rewritten for small changes, and
// there are never more than a few layers of each tier, except of those that are too large
// to be merged.
//
// It skips what skip reports: layers that cannot be merged must not stop the compaction
// of the rest.
func nextMerge(chain []dormouse.Layer, l layer.Limits, skip func(from, to int) bool) (from, to int, ok bool) {
	for i := range chain {
		from, size := i, weight(chain[i])
		for from > 0 && tier(weight(chain[from-1])) < tier(size) {
			from--
			size += weight(chain[from])
		}
		if from == i {
			for from > 0 && i+1-from < fanIn && tier(weight(chain[from-1])) == tier(weight(chain[i])) {
				from--
			}
			if i+1-from < fanIn {
				continue
			}
		}
		if fit(chain[from:i+1], l) && !skip(from, i+1) {
			return from, i + 1, true
		}
	}
	return 0, 0, false
}

// fit reports whether layers fit into one even if none of them hides anything in another.
func fit(run []dormouse.Layer, l layer.Limits) bool {
	entries, bytes, paths := len(run), int64(0), int64(len(run)) // the roots
	for _, r := range run {
		entries += r.Entries
		bytes += r.Bytes
		paths += pathsOf(r, l)
	}
	return l.Check(entries, bytes, paths) == nil
}

// pathsOf is how many bytes the paths of a layer have. For a layer from before they were
// counted it is the most that they can have: each directory above an entry is an entry
// too, so nothing lies deeper than there are entries, and all are within the limits.
func pathsOf(r dormouse.Layer, l layer.Limits) int64 {
	const longest = 256 // bytes that a name and what parts it from the next take
	if r.Paths > 0 || r.Entries == 0 {
		return r.Paths
	}
	if n := int64(r.Entries); n < l.MaxPaths()/longest {
		return min(longest*n*(n+1)/2, l.MaxPaths()) //nolint:mnd // the sum of 1 to n
	}
	return l.MaxPaths()
}
