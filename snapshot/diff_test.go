//go:build linux

package snapshot_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

func (h *home) diff(before, now []dormouse.Layer, most int) snapshot.Difference {
	h.t.Helper()
	d, err := h.Diff(h.t.Context(), before, now, most)
	must(h.t, err)
	return d
}

func TestADifferenceNamesWhatIsNotWhatItWas(t *testing.T) {
	h := open(t)
	base := h.keep("stays", "s", "goes", "gone", "grows", "a", "d/", "", "d/in", "1234", "turns", "file")
	top := h.keep("-goes", "", "grows", "abc", "-d", "", "new", "", "turns/", "", "turns/in", "xy")
	before, now := []dormouse.Layer{base}, []dormouse.Layer{base, top}
	want := snapshot.Difference{Added: 2, Changed: 2, Removed: 3, Changes: []snapshot.Change{
		{Path: "d", What: snapshot.Removed, Kind: "directory"},
		{Path: "d/in", What: snapshot.Removed, Kind: "file", Was: 4},
		{Path: "goes", What: snapshot.Removed, Kind: "file", Was: 4},
		{Path: "grows", What: snapshot.Changed, Kind: "file", Was: 1, Size: 3},
		{Path: "new", What: snapshot.Added, Kind: "file"},
		{Path: "turns", What: snapshot.Changed, Kind: "directory", Was: 4},
		{Path: "turns/in", What: snapshot.Added, Kind: "file", Size: 2},
	}}
	if diff := cmp.Diff(want, h.diff(before, now, 100)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Changes, want.Omitted = want.Changes[:2], 5
	if diff := cmp.Diff(want, h.diff(before, now, 2)); diff != "" {
		t.Errorf("of which two are named (-want +got):\n%s", diff)
	}
	if all := h.diff(nil, before, 100); all.Added != 6 || len(all.Changes) != 6 || all.Changes[0].Path != "d" {
		t.Errorf("from nothing: %+v", all)
	}
	back := h.diff(now, before, 0)
	if back.Added != 3 || back.Changed != 2 || back.Removed != 2 || back.Omitted != 7 {
		t.Errorf("the other way: %+v", back)
	}
}

func TestADifferenceComparesBytesAndNotTimes(t *testing.T) {
	h := open(t)
	base := h.keep("same", "abc", "other", "abc")
	g := h.staged("same", "abc", "other", "abd") // as large, and of the same time
	must(t, os.Chtimes(filepath.Join(g.Dir, "same"), zero, zero.Add(1)))
	top, err := h.Put(t.Context(), g)
	must(t, err)
	got := h.diff([]dormouse.Layer{base}, []dormouse.Layer{base, top}, 100)
	if len(got.Changes) != 1 || got.Changes[0].Path != "other" || got.Changes[0].What != snapshot.Changed {
		t.Errorf("%+v", got)
	}
}

// A chain that was made shorter shows the same, also where its layers were fetched.
func TestACompactedChainDoesNotDiffer(t *testing.T) {
	h := open(t)
	w := layertest.Workspace{T: t, R: rand.New(rand.NewPCG(3, 7))}
	var line []dormouse.Layer
	for range 20 {
		g, err := h.Stage(t.Context())
		must(t, err)
		w.Dir = g.Dir
		for range 4 {
			w.Step()
		}
		l, err := h.Put(t.Context(), g)
		must(t, err)
		must(t, g.Close())
		line = append(line, l)
	}
	must(t, h.Compact(t.Context(), line))
	short := h.Compacted(line)
	if len(short) >= len(line) {
		t.Fatalf("%d layers were made of %d", len(short), len(line))
	}
	elsewhere := openAt(t, filepath.Join(t.TempDir(), "elsewhere"), h.blobs)
	for _, at := range []*home{h, elsewhere} {
		if got := at.diff(line, short, 5); len(got.Changes) != 0 {
			t.Errorf("%+v", got)
		}
	}
	if got := elsewhere.diff(line[:1], line, 1); got.Added == 0 {
		t.Errorf("%+v of a line of %d", got, len(line))
	}
}

func TestADifferenceOfWhatIsLostIsAnError(t *testing.T) {
	h := open(t)
	l := h.keep("a", "b")
	lost := l
	lost.Digest, lost.DiffID = dormouse.DigestOf([]byte("x")), dormouse.DigestOf([]byte("y"))
	if _, err := h.Diff(t.Context(), []dormouse.Layer{l}, []dormouse.Layer{lost}, 1); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("a blob that is not there: %v", err)
	}
	if _, err := h.Diff(t.Context(), []dormouse.Layer{l}, []dormouse.Layer{{Digest: "x"}}, 1); !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("no digest: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Diff(ctx, []dormouse.Layer{l}, []dormouse.Layer{l}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody wants it: %v", err)
	}
}
