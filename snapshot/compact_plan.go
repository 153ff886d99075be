package snapshot

import (
	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// A line is kept short as a counter is: steps of about the same size are merged
// when there are so many of them, and what comes of it is a step of the next size.
const (
	fanIn = 4
	// unit is what the smallest steps are taken for, and perName what a name weighs.
	unit    = 4 << 10
	perName = 1 << 10
)

func weight(l dormouse.Layer) int64 { return l.Bytes + int64(l.Entries)*perName }

// tier is how large a step of some weight is.
func tier(weight int64) int {
	n := 0
	for ; weight >= unit*fanIn; weight /= fanIn {
		n++
	}
	return n
}

// nextMerge finds the layers of a line that are to be merged first, from one up to
// another, if any are. Each layer is asked only about those below it, so that a
// line that grows is merged as it was before. Those below a layer that are smaller
// than it go into it, which costs no more than that layer has; and a layer only
// goes into a larger one together with others of its own size. So the base of a
// line is not written again for what is small, and there are never more than a few
// layers of each size, except of those that are too large to be merged.
//
// What passed says is passed over. One run that cannot be merged must not keep the rest
// of the line from being shortened.
func nextMerge(line []dormouse.Layer, l layer.Limits, passed func(from, to int) bool) (from, to int, ok bool) {
	for i := range line {
		from, size := i, weight(line[i])
		for from > 0 && tier(weight(line[from-1])) < tier(size) {
			from--
			size += weight(line[from])
		}
		if from == i {
			for from > 0 && i+1-from < fanIn && tier(weight(line[from-1])) == tier(weight(line[i])) {
				from--
			}
			if i+1-from < fanIn {
				continue
			}
		}
		if fit(line[from:i+1], l) && !passed(from, i+1) {
			return from, i + 1, true
		}
	}
	return 0, 0, false
}

// fit reports whether layers are one if nothing in them hides anything.
func fit(run []dormouse.Layer, l layer.Limits) bool {
	entries, bytes, paths := len(run), int64(0), int64(len(run)) // the roots
	for _, r := range run {
		entries += r.Entries
		bytes += r.Bytes
		paths += pathsOf(r, l)
	}
	return l.Check(entries, bytes, paths) == nil
}

// pathsOf is how many bytes the paths of a layer are. Of a layer from before they were
// counted it is the most that they can be: each directory on the way to something is an
// entry too, so that nothing lies deeper than there are entries, and all are within the
// limits.
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
