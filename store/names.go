package store

import (
	"slices"

	"github.com/dormouse-run/dormouse"
)

// Names are the blobs that a point of a workspace line needs. The empty digest
// names nothing.
type Names struct {
	Point   dormouse.SnapshotID
	Digests []dormouse.Digest
}

// NamesAfter is what points name once r is laid over what they named before.
func (r Rows) NamesAfter(before []Names) []Names {
	names := slices.Clone(before)
	forget := func(point dormouse.SnapshotID) {
		names = slices.DeleteFunc(names, func(n Names) bool { return n.Point == point })
	}
	for _, n := range r.Names {
		forget(n.Point)
		names = append(names, n)
	}
	for _, point := range r.Unnamed {
		forget(point)
	}
	return names
}
