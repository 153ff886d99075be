package law

import (
	"time"

	"github.com/dormouse-run/dormouse"
)

// Expired returns the snapshots whose retention is over. The newest snapshot and the one
// below the workspace stay.
func (s State) Expired(keep dormouse.Retention, now time.Time) []dormouse.SnapshotID {
	pinned := func(id dormouse.SnapshotID) bool { return id == s.Workspace.Base || id == s.Workspace.Newest }
	return Retain(s.Snapshots, now, keep.MaxAge, keep.MaxCount, pinned)
}

// Retain returns which of a session's snapshots, the oldest first, are not to be kept any
// longer: those older than maxAge, and the oldest of more than maxCount. Zero is no
// limit. The newest stays whatever the limits are, and so do those that are pinned.
func Retain(snaps []Snapshot, now time.Time, maxAge time.Duration, maxCount int, pinned func(dormouse.SnapshotID) bool) []dormouse.SnapshotID {
	last := len(snaps) - 1
	free := func(i int) bool { return i != last && !pinned(snaps[i].ID) }
	old := func(i int) bool { return maxAge > 0 && now.Sub(snaps[i].Taken) > maxAge && free(i) }
	left := len(snaps)
	for i := range snaps {
		if old(i) {
			left--
		}
	}
	var remove []dormouse.SnapshotID
	for i, p := range snaps {
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
