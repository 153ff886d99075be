package postgres_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
)

// However much a batch brings, it is two round trips, and no statement is said
// that has nothing to do.
func TestABatchIsTwoRoundTrips(t *testing.T) {
	p := newProxy(t)
	s := open(t, p.through(database(t)))
	w := create(t, s, sessionID(1))
	if err := w.add(t.Context(), w.batch(1)); err != nil { // from then on the writer knows what it wrote
		t.Fatal(err)
	}
	var trips [][]string // guarded by p.mu
	p.always(func(said []byte) fate {
		var trip []string
		for _, statement := range []string{
			"begin", "create_sessions", "update_sessions", "lock_sessions", "read_fences", "insert_events", "upsert_labels", "delete_labels",
			"upsert_prompts", "upsert_ops", "delete_chunks", "upsert_chunks", "decrement_names", "delete_points", "upsert_points",
			"increment_names", "delete_names", "insert_client_ids", "upsert_states", "commit",
		} {
			if bytes.Contains(said, []byte("\x00"+statement+"\x00")) {
				trip = append(trip, statement)
			}
		}
		if trip != nil { // the others are not the writer's
			trips = append(trips, trip)
		}
		return passes
	})
	var digests []dormouse.Digest
	for n := range 64 {
		digests = append(digests, dormouse.DigestOf([]byte{byte(n)}))
	}
	for _, c := range []struct {
		what   string
		change func(*dormouse.Rows)
		stored []string
	}{
		{"nothing else", func(*dormouse.Rows) {}, []string{"insert_events", "commit"}},
		{"names", func(r *dormouse.Rows) {
			r.SnapshotBlobs = []dormouse.SnapshotBlobs{{Snapshot: "snap_1", Digests: digests}}
		}, []string{"insert_events", "decrement_names", "upsert_points", "increment_names", "delete_names", "commit"}},
		{"no names any more", func(r *dormouse.Rows) { r.Released = []dormouse.SnapshotID{"snap_1"} }, []string{"insert_events", "decrement_names", "delete_points", "delete_names", "commit"}},
	} {
		b := w.batch(1)
		c.change(b.Rows)
		if err := w.add(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		if diff := cmp.Diff([][]string{{"begin", "update_sessions"}, c.stored}, trips); diff != "" {
			t.Errorf("a batch with %s (-want +got):\n%s", c.what, diff)
		}
		trips = nil
		p.mu.Unlock()
	}
}
