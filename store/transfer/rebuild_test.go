package transfer_test

import (
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/store/transfer"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

// A blob that a snapshot in the log names and no row does would be collected.
func TestNamesThatRowsLackAreADifference(t *testing.T) {
	p := &transfertest.Past{T: t, Deployment: transfertest.Open(t, t.TempDir())}
	p.Create(transfertest.Fresh)
	p.Create(transfertest.Ended)
	rows, err := history.Rebuild(t.Context(), p.Store, p.Blobs, transfertest.Fresh)
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, want ...string) {
		t.Helper()
		if wrong, err := transfer.Compare(t.Context(), p.Store, transfertest.Fresh, rows); err != nil || !slices.Equal(wrong, want) {
			t.Errorf("%s: %q differ, %v, want %q", when, wrong, err, want)
		}
	}
	check("without points")
	rows.SnapshotBlobs = []dormouse.SnapshotBlobs{
		{Snapshot: "snap_1", Digests: []dormouse.Digest{"sha256:a", "sha256:b"}},
		{Snapshot: "snap_2", Digests: []dormouse.Digest{"sha256:b", "", "sha256:c"}},
	}
	check("before a rebuild", "names")
	if err := p.Store.Rebuild(t.Context(), transfertest.Fresh, rows); err != nil {
		t.Fatal(err)
	}
	check("after a rebuild")
	rows.SnapshotBlobs[0].Digests = append(rows.SnapshotBlobs[0].Digests, "sha256:d")
	check("when one is missing", "names")
}
