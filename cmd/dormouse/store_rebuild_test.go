package main

import (
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
)

// A blob that a point of the log names and no row does would be collected.
func TestNamesThatRowsLackAreADifference(t *testing.T) {
	p := &past{t: t, deployment: openData(t, t.TempDir())}
	p.create(fresh)
	p.create(ended)
	rows, err := history.Rebuild(t.Context(), p.store, p.blobs, fresh)
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, want ...string) {
		t.Helper()
		if wrong, err := compare(t.Context(), p.store, fresh, rows); err != nil || !slices.Equal(wrong, want) {
			t.Errorf("%s: %q differ, %v, want %q", when, wrong, err, want)
		}
	}
	check("without points")
	rows.SnapshotBlobs = []dormouse.SnapshotBlobs{
		{Snapshot: "snap_1", Digests: []dormouse.Digest{"sha256:a", "sha256:b"}},
		{Snapshot: "snap_2", Digests: []dormouse.Digest{"sha256:b", "", "sha256:c"}},
	}
	check("before a rebuild", "names")
	if err := p.store.Rebuild(t.Context(), fresh, rows); err != nil {
		t.Fatal(err)
	}
	check("after a rebuild")
	rows.SnapshotBlobs[0].Digests = append(rows.SnapshotBlobs[0].Digests, "sha256:d")
	check("when one is missing", "names")
}
