package session_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

// Each and Collect make the map collectable; every blob in it was put when the
// test says so.
func (b *mapBlobs) Each(_ context.Context, before time.Time, f func(dormouse.Digest) error) error {
	b.mu.Lock()
	var old []dormouse.Digest
	for d := range b.m {
		if b.put[d].Before(before) {
			old = append(old, d)
		}
	}
	b.mu.Unlock()
	for _, d := range old {
		if err := f(d); err != nil {
			return err
		}
	}
	return nil
}

func (b *mapBlobs) Collect(_ context.Context, d dormouse.Digest, before time.Time) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.put[d].Before(before) {
		return false, nil
	}
	delete(b.m, d)
	return true, nil
}

func (h *house) collect() int {
	h.t.Helper()
	n, err := h.live.Collect(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

func TestBlobsGoWithTheLastLogThatNamesThem(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		large := strings.Repeat("x", 100_000)
		var ids []dormouse.SessionID
		for range 2 { // each queues a body of its own and says the same message, which both logs name
			h.create(dormouse.Created{})
			h.mustPrompt("p", large)
			ids = append(ids, h.id)
		}
		if _, err := h.blobs.Put(t.Context(), []byte("never named")); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		collect := func() int {
			t.Helper()
			n := h.collect()
			return n + h.collect()
		}
		if n := collect(); n != 0 {
			t.Errorf("%d young blobs were removed", n)
		}
		settle(2 * time.Hour)
		if n := collect(); n != 1 {
			t.Errorf("%d blobs removed, want the one that nobody named", n)
		}
		for i, want := range []int{1, 2} {
			h.id = ids[i]
			if err := h.do(law.Delete{}); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
			if n := collect(); n != want {
				t.Errorf("after session %d was deleted: %d blobs removed, want %d", i, n, want)
			}
		}
	})
}

func TestBlobsGoWithTheLastSnapshotThatNamesThem(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		var layers []dormouse.Digest
		for _, text := range []string{"lower", "upper"} {
			d, err := h.blobs.Put(t.Context(), []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			layers = append(layers, d)
		}
		settle(2 * time.Hour)
		rows, err := history.Rebuild(t.Context(), h.store, h.blobs, h.id)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			names   []dormouse.SnapshotBlobs
			removed int
		}{
			{[]dormouse.SnapshotBlobs{{Snapshot: "snap_1", Digests: layers[:1]}, {Snapshot: "snap_2", Digests: layers}}, 0},
			{[]dormouse.SnapshotBlobs{{Snapshot: "snap_1", Digests: layers[:1]}}, 1},
			{nil, 1},
		} {
			rows.SnapshotBlobs = c.names
			if err := h.store.Rebuild(t.Context(), h.id, rows); err != nil {
				t.Fatal(err)
			}
			if n := h.collect(); n != 0 {
				t.Errorf("%d blobs were removed that had just been named", n)
			}
			if n := h.collect(); n != c.removed {
				t.Errorf("with %d snapshots: %d blobs removed, want %d", len(c.names), n, c.removed)
			}
		}
	})
}
