package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func TestNamesAfterManyBatchesAreThoseOfTheLast(t *testing.T) {
	name := func(point dormouse.SnapshotID, digests ...dormouse.Digest) store.Names {
		return store.Names{Point: point, Digests: digests}
	}
	var names []store.Names
	for n, c := range []struct {
		rows store.Rows
		want []store.Names
	}{
		{store.Rows{}, nil},
		{store.Rows{Names: []store.Names{name("a", "1"), name("b", "1", "2")}}, []store.Names{name("a", "1"), name("b", "1", "2")}},
		{store.Rows{Names: []store.Names{name("a", "3"), name("c", "4")}}, []store.Names{name("b", "1", "2"), name("a", "3"), name("c", "4")}},
		{store.Rows{}, []store.Names{name("b", "1", "2"), name("a", "3"), name("c", "4")}},
		{store.Rows{Unnamed: []dormouse.SnapshotID{"b", "never"}}, []store.Names{name("a", "3"), name("c", "4")}},
		{store.Rows{Names: []store.Names{name("d", "5"), name("c", "6"), name("c", "7")}, Unnamed: []dormouse.SnapshotID{"d", "a"}}, []store.Names{name("c", "7")}},
		{store.Rows{Unnamed: []dormouse.SnapshotID{"c"}}, nil},
	} {
		before := append([]store.Names{}, names...)
		after := c.rows.NamesAfter(names)
		if diff := cmp.Diff(c.want, after, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("after batch %d (-want +got):\n%s", n, diff)
		}
		if diff := cmp.Diff(before, names, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("batch %d changed what was before:\n%s", n, diff)
		}
		names = after
	}
}
