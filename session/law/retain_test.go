package law_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestRetention(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	aged := func(hours ...int) []law.Snapshot {
		var snapshots []law.Snapshot
		for _, h := range hours {
			snapshots = append(snapshots, law.Snapshot{ID: dormouse.SnapshotID(fmt.Sprintf("snap_%d", len(snapshots))), Taken: now.Add(-time.Duration(h) * time.Hour)})
		}
		return snapshots
	}
	for name, c := range map[string]struct {
		snapshots []law.Snapshot
		age       int
		count     int
		pinned    []dormouse.SnapshotID
		want      []dormouse.SnapshotID
	}{
		"nothing there":              {nil, 1, 1, nil, nil},
		"no limits":                  {aged(9, 8, 7), 0, 0, nil, nil},
		"old ones":                   {aged(9, 8, 2, 1), 5, 0, nil, []dormouse.SnapshotID{"snap_0", "snap_1"}},
		"just as old as it may be":   {aged(5, 1), 5, 0, nil, nil},
		"too many":                   {aged(9, 8, 2, 1), 0, 3, nil, []dormouse.SnapshotID{"snap_0"}},
		"old and too many":           {aged(9, 8, 2, 1), 5, 1, nil, []dormouse.SnapshotID{"snap_0", "snap_1", "snap_2"}},
		"the newest, however old":    {aged(9, 8), 5, 0, nil, []dormouse.SnapshotID{"snap_0"}},
		"only the newest":            {aged(9), 5, 1, nil, nil},
		"pinned":                     {aged(9, 8, 2, 1), 5, 1, []dormouse.SnapshotID{"snap_1"}, []dormouse.SnapshotID{"snap_0", "snap_2"}},
		"pinned ones count":          {aged(9, 8, 2, 1), 0, 2, []dormouse.SnapshotID{"snap_0"}, []dormouse.SnapshotID{"snap_1", "snap_2"}},
		"a clock that was set back":  {aged(-3, 9, -2), 5, 0, nil, []dormouse.SnapshotID{"snap_1"}},
		"old ones are not counted":   {aged(2, 9, 1), 5, 2, nil, []dormouse.SnapshotID{"snap_1"}},
		"more pinned than there may": {aged(9, 8, 7), 0, 1, []dormouse.SnapshotID{"snap_0", "snap_1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pinned := func(id dormouse.SnapshotID) bool { return slices.Contains(c.pinned, id) }
			got := law.Retain(c.snapshots, now, time.Duration(c.age)*time.Hour, c.count, pinned)
			if !slices.Equal(got, c.want) {
				t.Errorf("removed are %v, want %v", got, c.want)
			}
		})
	}
}

// What is left needs no second look.
func TestRetentionIsDoneAtOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	now := time.Unix(1_000_000, 0)
	for range 1000 {
		var snapshots []law.Snapshot
		for n := range r.IntN(20) {
			snapshots = append(snapshots, law.Snapshot{ID: dormouse.SnapshotID(fmt.Sprint(n)), Taken: now.Add(-time.Duration(r.IntN(100)) * time.Minute)})
		}
		pinned := func(id dormouse.SnapshotID) bool { return len(id) == 1 && id[0]%3 == 0 }
		age, count := time.Duration(r.IntN(100))*time.Minute, r.IntN(10)
		removed := law.Retain(snapshots, now, age, count, pinned)
		left := slices.DeleteFunc(slices.Clone(snapshots), func(p law.Snapshot) bool { return slices.Contains(removed, p.ID) })
		if again := law.Retain(left, now, age, count, pinned); len(again) > 0 {
			t.Fatalf("of %v first %v is removed, then %v", snapshots, removed, again)
		}
		if len(snapshots) > 0 && left[len(left)-1] != snapshots[len(snapshots)-1] || slices.ContainsFunc(removed, pinned) {
			t.Fatalf("of %v %v is removed", snapshots, removed)
		}
	}
}
