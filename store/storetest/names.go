package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func digest(n int) dormouse.Digest { return dormouse.DigestOf(fmt.Appendf(nil, "blob %d", n)) }

// digests are those from first up to last.
func digests(first, last int) (all []dormouse.Digest) {
	for n := first; n <= last; n++ {
		all = append(all, digest(n))
	}
	return all
}

func snapshotID(n int) dormouse.SnapshotID {
	return dormouse.SnapshotID(fmt.Sprintf("%s%04d", dormouse.SnapshotPrefix, n))
}

// naming adds the blobs that a snapshot names to a batch.
func naming(n int, all ...dormouse.Digest) func(*store.Batch) {
	return func(b *store.Batch) {
		b.Rows.SnapshotBlobs = append(b.Rows.SnapshotBlobs, dormouse.SnapshotBlobs{Snapshot: snapshotID(n), Digests: all})
	}
}

// unnaming releases snapshots in a batch.
func unnaming(snapshots ...int) func(*store.Batch) {
	return func(b *store.Batch) {
		for _, n := range snapshots {
			b.Rows.Released = append(b.Rows.Released, snapshotID(n))
		}
	}
}

// wantNamed fails unless exactly the given digests are named, of the first
// hundred.
func wantNamed(t *testing.T, when string, s store.Store, want ...dormouse.Digest) {
	t.Helper()
	got, err := s.Named(t.Context(), digests(0, 99))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	equal(t, "named "+when, got, slices.Sorted(slices.Values(want)))
}

func testNaming(t *testing.T, fresh opener) {
	ada := sessionID(1)

	t.Run("named must return those of the digests that an event of any session names", fresh(func(t *testing.T, s store.Store) {
		w, other := create(t, s, ada), create(t, s, sessionID(2))
		names := func(n int) func(*store.Batch) {
			return func(b *store.Batch) { b.Events[0].Payload, b.Events[0].Blob = nil, digest(n) }
		}
		w.add(t, names(1))
		w.add(t, names(2))
		w.add(t, names(1))
		other.add(t, names(2))
		other.add(t, names(3))
		wantNamed(t, "by events", s, digests(1, 3)...)
		if err := s.Delete(t.Context(), ada, w.epoch); err != nil {
			t.Fatal(err)
		}
		wantNamed(t, "after a delete", s, digests(2, 3)...)
	}))

	t.Run("named must return those of the digests that a snapshot of any session names", fresh(func(t *testing.T, s store.Store) {
		create(t, s, ada, naming(1, digests(1, 64)...))
		create(t, s, sessionID(2)).add(t, naming(1, digests(60, 70)...), naming(2, digests(70, 80)...))
		wantNamed(t, "by snapshots", s, digests(1, 80)...)
		for _, asked := range []struct {
			what        string
			asked, want []dormouse.Digest
		}{
			{"none", nil, nil},
			{"one", digests(64, 64), digests(64, 64)},
			{"another", digests(81, 81), nil},
			{"no digest", []dormouse.Digest{""}, nil},
			{"many", digests(0, 5000), digests(1, 80)},
		} {
			got, err := s.Named(t.Context(), asked.asked)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			equal(t, "named of "+asked.what, got, slices.Sorted(slices.Values(asked.want)))
		}
	}))

	t.Run("the empty digest names nothing and one that is named twice is named", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		w.add(t, naming(1, digest(1), "", digest(1)), naming(2))
		wantNamed(t, "twice", s, digest(1))
		got, err := s.Named(t.Context(), []dormouse.Digest{""})
		if err != nil || len(got) != 0 {
			t.Errorf("named of no digest = %v, %v, want none", got, err)
		}
		w.add(t, unnaming(1, 2))
		wantNamed(t, "after that", s)
	}))

	t.Run("names are inserted or replaced by snapshot", fresh(func(t *testing.T, s store.Store) {
		w, other := create(t, s, ada), create(t, s, sessionID(2))
		w.add(t, naming(1, digests(1, 64)...))
		w.add(t, naming(2, digests(10, 12)...))
		other.add(t, naming(1, digest(20)))
		w.add(t, naming(1, digests(64, 66)...))
		wantNamed(t, "after one was replaced", s, append(digests(10, 12), append(digests(64, 66), digest(20))...)...)
		w.add(t, naming(1, digest(30)), naming(2, digest(31)), naming(1, digest(32)))
		wantNamed(t, "after one was replaced twice", s, digest(20), digest(31), digest(32))
		w.add(t, naming(2))
		wantNamed(t, "after one names nothing", s, digest(20), digest(32))
		w.add(t)
		wantNamed(t, "after a batch without names", s, digest(20), digest(32))
	}))

	t.Run("an unnamed snapshot names nothing any more and may never have been", fresh(func(t *testing.T, s store.Store) {
		w, other := create(t, s, ada), create(t, s, sessionID(2))
		w.add(t, naming(1, digests(1, 64)...), naming(2, digests(60, 65)...))
		other.add(t, naming(1, digests(64, 66)...))
		w.add(t, unnaming(1, 7))
		wantNamed(t, "by the others", s, digests(60, 66)...)
		w.add(t, unnaming(1, 2, 2))
		wantNamed(t, "by the other session", s, digests(64, 66)...)
		w.add(t, naming(1, digest(1)))
		wantNamed(t, "by a snapshot that names again", s, append(digests(64, 66), digest(1))...)
	}))

	t.Run("a snapshot that is named and unnamed in one batch is unnamed", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada, naming(1, digest(1)), naming(2, digest(2)), unnaming(1))
		wantNamed(t, "at first", s, digest(2))
		w.add(t, naming(2, digest(3)), naming(3, digest(4)), naming(4, digest(5)), unnaming(3, 2, 9))
		wantNamed(t, "later", s, digest(5))
	}))

	t.Run("whatever snapshots named before what they name last is named", fresh(func(t *testing.T, s store.Store) {
		r := rand.New(rand.NewPCG(1, 2))
		ws := []*writer{create(t, s, ada), create(t, s, sessionID(2))}
		names := make(map[*writer][]dormouse.SnapshotBlobs)
		for round := range 100 {
			w := ws[r.IntN(len(ws))]
			var changes []func(*store.Batch)
			for range r.IntN(3) {
				var all []dormouse.Digest
				for range r.IntN(6) {
					all = append(all, digest(r.IntN(12)))
				}
				changes = append(changes, naming(r.IntN(5), all...))
			}
			for range r.IntN(4) {
				changes = append(changes, unnaming(r.IntN(5)))
			}
			w.add(t, append(changes, func(b *store.Batch) { names[w] = b.Rows.SnapshotBlobsAfter(names[w]) })...)
			want := make(map[dormouse.Digest]bool)
			for _, n := range slices.Concat(names[ws[0]], names[ws[1]]) {
				for _, d := range n.Digests {
					want[d] = true
				}
			}
			wantNamed(t, fmt.Sprintf("after batch %d", round), s, slices.Collect(maps.Keys(want))...)
		}
	}))

	t.Run("a digest is named for as long as one session names it", fresh(func(t *testing.T, s store.Store) {
		w, other := create(t, s, ada), create(t, s, sessionID(2))
		w.add(t, naming(1, digests(1, 3)...))
		other.add(t, naming(1, digests(2, 4)...))
		third := create(t, s, sessionID(3), naming(5, digest(2)))
		if err := s.Delete(t.Context(), ada, w.epoch); err != nil {
			t.Fatal(err)
		}
		wantNamed(t, "after a delete", s, digests(2, 4)...)
		other.add(t, unnaming(1))
		wantNamed(t, "by the last", s, digest(2))
		if err := s.Delete(t.Context(), third.id, third.epoch); err != nil {
			t.Fatal(err)
		}
		wantNamed(t, "by nobody", s)
		create(t, s, ada)
		wantNamed(t, "by a session with the name of a deleted one", s)
	}))

	t.Run("a batch that is refused names nothing and unnames nothing", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada, naming(1, digest(1)))
		stale := *w
		epoch, err := s.Claim(t.Context(), ada, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.epoch = epoch
		wantErr(t, "append under a stale epoch", stale.try(t.Context(), naming(1, digest(2)), naming(2, digest(3))), dormouse.ErrLeaseLost)
		wantErr(t, "append under a stale epoch", stale.try(t.Context(), unnaming(1)), dormouse.ErrLeaseLost)
		late := w.batch(1)
		w.add(t)
		naming(2, digest(3))(&late)
		unnaming(1)(&late)
		wantErr(t, "append in the wrong place", s.Append(t.Context(), late), dormouse.ErrConflict)
		again := first(ada)
		naming(2, digest(3))(&again)
		wantErr(t, "create of what exists", s.Create(t.Context(), again), dormouse.ErrConflict)
		wantNamed(t, "after all that", s, digest(1))
	}))

	t.Run("rebuild must replace what the snapshots of a session name", fresh(func(t *testing.T, s store.Store) {
		w, other := create(t, s, ada), create(t, s, sessionID(2))
		w.add(t, naming(1, digests(1, 64)...), naming(2, digests(60, 65)...))
		other.add(t, naming(1, digest(70)))
		rows := dormouse.Rows{
			Session:       w.index,
			SnapshotBlobs: []dormouse.SnapshotBlobs{{Snapshot: snapshotID(2), Digests: digests(65, 66)}, {Snapshot: snapshotID(3), Digests: digests(80, 81)}, {Snapshot: snapshotID(4), Digests: digests(90, 91)}},
			// A rebuild has the log whole and need not say it, but may.
			Released: []dormouse.SnapshotID{snapshotID(1), snapshotID(4)},
		}
		if err := s.Rebuild(t.Context(), ada, rows); err != nil {
			t.Fatal(err)
		}
		wantNamed(t, "after a rebuild", s, append(append(digests(65, 66), digests(80, 81)...), digest(70))...)
		w.add(t, unnaming(2))
		wantNamed(t, "after an append", s, append(digests(80, 81), digest(70))...)
		if err := s.Rebuild(t.Context(), ada, dormouse.Rows{Session: w.index}); err != nil {
			t.Fatal(err)
		}
		wantNamed(t, "after a rebuild without names", s, digest(70))
		rows.Session.Seq--
		wantErr(t, "rebuild of too little", s.Rebuild(t.Context(), ada, rows), dormouse.ErrConflict)
		wantNamed(t, "after a rebuild that was refused", s, digest(70))
	}))

	t.Run("import stores what snapshots name", fresh(func(t *testing.T, s store.Store) {
		b := first(ada)
		b.Epoch = 7
		naming(1, digest(1))(&b)
		if err := s.Import(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		wantNamed(t, "after an import", s, digest(1))
	}))

	t.Run("what a caller does with digests afterwards changes nothing", fresh(func(t *testing.T, s store.Store) {
		mine := digests(1, 2)
		create(t, s, ada, naming(1, mine...))
		mine[0] = digest(3)
		wantNamed(t, "as at first", s, digests(1, 2)...)
	}))

	t.Run("many sessions name and unname at once", fresh(func(t *testing.T, s store.Store) {
		ws := createMany(t, s, writers)
		shared := func(n int) int { return writers + n%4 }
		each(ws, func(n int, w *writer) {
			for round := range 3 {
				if err := w.try(t.Context(), naming(round, digest(n), digest(shared(n))), unnaming(round-1)); err != nil {
					t.Error(err)
				}
			}
			if n%2 == 0 {
				if err := w.try(t.Context(), unnaming(2)); err != nil {
					t.Error(err)
				}
			}
		})
		want := []dormouse.Digest{digest(shared(1)), digest(shared(3))}
		for n := 1; n < len(ws); n += 2 {
			want = append(want, digest(n))
		}
		wantNamed(t, "in the end", s, want...)
	}))
}
