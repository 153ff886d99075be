package snapshot

import (
	"time"

	"github.com/dormouse-run/dormouse"
)

// Point is one snapshot of a line.
type Point struct {
	ID    dormouse.SnapshotID
	Taken time.Time
}

// Retain says which points of a line, the oldest first, are not to be kept any
// longer: those older than maxAge, and the oldest of more than maxCount. Zero is no
// limit. The newest stays whatever the limits are, and so do those that are pinned.
func Retain(points []Point, now time.Time, maxAge time.Duration, maxCount int, pinned func(dormouse.SnapshotID) bool) []dormouse.SnapshotID {
	last := len(points) - 1
	free := func(i int) bool { return i != last && !pinned(points[i].ID) }
	old := func(i int) bool { return maxAge > 0 && now.Sub(points[i].Taken) > maxAge && free(i) }
	left := len(points)
	for i := range points {
		if old(i) {
			left--
		}
	}
	var remove []dormouse.SnapshotID
	for i, p := range points {
		many := maxCount > 0 && left > maxCount && free(i)
		if old(i) || many {
			remove = append(remove, p.ID)
		}
		if many && !old(i) {
			left--
		}
	}
	return remove
}
