package dormouse_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
)

func TestBlobsOfSnapshotsAfterManyBatchesAreThoseOfTheLast(t *testing.T) {
	name := func(id dormouse.SnapshotID, digests ...dormouse.Digest) dormouse.SnapshotBlobs {
		return dormouse.SnapshotBlobs{Snapshot: id, Digests: digests}
	}
	var names []dormouse.SnapshotBlobs
	for n, c := range []struct {
		rows dormouse.Rows
		want []dormouse.SnapshotBlobs
	}{
		{dormouse.Rows{}, nil},
		{dormouse.Rows{SnapshotBlobs: []dormouse.SnapshotBlobs{name("a", "1"), name("b", "1", "2")}}, []dormouse.SnapshotBlobs{name("a", "1"), name("b", "1", "2")}},
		{dormouse.Rows{SnapshotBlobs: []dormouse.SnapshotBlobs{name("a", "3"), name("c", "4")}}, []dormouse.SnapshotBlobs{name("b", "1", "2"), name("a", "3"), name("c", "4")}},
		{dormouse.Rows{}, []dormouse.SnapshotBlobs{name("b", "1", "2"), name("a", "3"), name("c", "4")}},
		{dormouse.Rows{Released: []dormouse.SnapshotID{"b", "never"}}, []dormouse.SnapshotBlobs{name("a", "3"), name("c", "4")}},
		{dormouse.Rows{SnapshotBlobs: []dormouse.SnapshotBlobs{name("d", "5"), name("c", "6"), name("c", "7")}, Released: []dormouse.SnapshotID{"d", "a"}}, []dormouse.SnapshotBlobs{name("c", "7")}},
		{dormouse.Rows{Released: []dormouse.SnapshotID{"c"}}, nil},
	} {
		before := append([]dormouse.SnapshotBlobs{}, names...)
		after := c.rows.SnapshotBlobsAfter(names)
		if diff := cmp.Diff(c.want, after, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("after batch %d (-want +got):\n%s", n, diff)
		}
		if diff := cmp.Diff(before, names, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("batch %d changed what was before:\n%s", n, diff)
		}
		names = after
	}
}
