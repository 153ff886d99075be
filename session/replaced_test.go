package session_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// lose removes the blob of a snapshot's uppermost layer.
func (h *house) lose(snap dormouse.SnapshotID) {
	h.t.Helper()
	m, err := h.live.Manifest(h.t.Context(), h.id, snap)
	if err != nil {
		h.t.Fatal(err)
	}
	h.blobs.mu.Lock()
	defer h.blobs.mu.Unlock()
	delete(h.blobs.m, m.Layers[len(m.Layers)-1].Digest)
}

// twoTurns runs two turns, which leave the file a with the texts 1 and 2, and returns
// their snapshots.
func (h *house) twoTurns(d *snapshotDriver) (first, second dormouse.SnapshotID) {
	h.t.Helper()
	d.notes = make(map[dormouse.SnapshotID]map[string]string)
	h.create(dormouse.Created{Warm: true})
	settle(time.Second)
	d.write("a", "1")
	h.mustPrompt("p1", script("effect x"))
	settle(time.Second)
	d.write("a", "2")
	h.mustPrompt("p2", script("effect y"))
	settle(time.Second)
	snapshots := h.state().Snapshots
	if len(snapshots) != 2 {
		h.t.Fatalf("%d snapshots", len(snapshots))
	}
	return snapshots[0].ID, snapshots[1].ID
}

func TestGoingBackNamesASnapshotThatCanBeRestored(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		first, second := h.twoTurns(d)
		h.lose(second)
		swap, err := h.live.Restore(t.Context(), h.id, ada, first, session.RestoreOptions{})
		if err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if got := h.files(d); got["a"] != "1" {
			t.Errorf("went back to %v", got)
		}
		m, err := h.live.Manifest(t.Context(), h.id, swap.Replaced)
		if err != nil {
			t.Fatalf("replaced %q: %v", swap.Replaced, err)
		}
		if lost := slices.ContainsFunc(m.Layers, func(l dormouse.Layer) bool { return h.blobs.m[l.Digest] == nil }); lost {
			t.Errorf("snapshot %s, which is named, has lost a blob", swap.Replaced)
		}
		if _, err := h.live.Restore(t.Context(), h.id, ada, swap.Replaced, session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if got := h.files(d); got["a"] != "2" {
			t.Errorf("came back to %v", got)
		}
		h.checked()
	})
}

func TestGoingBackIsRefusedIfWhatItReplacesLiesOverALostBlob(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		first, second := h.twoTurns(d)
		if _, err := h.live.Restore(t.Context(), h.id, ada, second, session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		h.lose(second)
		number, snapshots := h.state().Workspace.Number, len(h.state().Snapshots)
		swap, err := h.live.Restore(t.Context(), h.id, ada, first, session.RestoreOptions{})
		if !errors.Is(err, dormouse.ErrConflict) || !strings.Contains(err.Error(), "discard") {
			t.Errorf("replaced %q: %v", swap.Replaced, err)
		}
		if s := h.state(); s.Workspace.Number != number || len(s.Snapshots) != snapshots {
			t.Errorf("workspace %d with %d snapshots became %d with %d", number, snapshots, s.Workspace.Number, len(s.Snapshots))
		}
		swap, err = h.live.Restore(t.Context(), h.id, ada, first, session.RestoreOptions{Discard: true})
		if err != nil || swap.Replaced != "" {
			t.Errorf("discarding: replaced %q, %v", swap.Replaced, err)
		}
		settle(time.Minute)
		if got := h.files(d); got["a"] != "1" {
			t.Errorf("went back to %v", got)
		}
		h.checked()
	})
}

// What a sandbox leaves behind is sealed, which gives its volume up, only as layers that
// are all there.
func TestNothingIsSealedOverALostBlob(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		d.sealing = true
		_, second := h.twoTurns(d)
		h.lose(second)
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		w := h.state().Workspace
		if w.Number != 1 {
			t.Errorf("the workspace is number %d", w.Number)
		}
		for _, l := range w.Layers {
			if h.blobs.m[l.Digest] == nil {
				t.Error("the workspace lies over a blob that is lost, and its volume is given up")
			}
		}
		h.checked()
	})
}
