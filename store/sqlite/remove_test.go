package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// tables are those with rows of a session.
var tables = []string{"events", "prompts", "ops", "points", "names", "chunks", "labels", "states"}

// createLong makes a session with more rows in every table than are removed at once.
func createLong(t *testing.T, s *sqlite.Store, id dormouse.SessionID) *writer {
	t.Helper()
	const rows = 350
	w := create(t, s, id, func(b *store.Batch) { b.Rows.Session.Tags = []string{"long"} })
	b := w.batch(rows)
	b.State = &dormouse.StateCache{Seq: b.Last(), Data: []byte("folded")}
	for n := range rows {
		b.Rows.Prompts = append(b.Rows.Prompts, dormouse.PromptRecord{ID: dormouse.EventID(fmt.Sprintf("sevt_%d", n)), Seq: 2})
		b.Rows.Ops = append(b.Rows.Ops, dormouse.OpRecord{Op: dormouse.Op{ID: dormouse.OpID(fmt.Sprintf("op_%d", n))}, Status: dormouse.OpOpen})
		b.Rows.SnapshotBlobs = append(b.Rows.SnapshotBlobs, dormouse.SnapshotBlobs{
			Snapshot: dormouse.SnapshotID(fmt.Sprintf("snap_%d", n)), Digests: []dormouse.Digest{"sha256:a", dormouse.DigestOf(fmt.Append(nil, n))},
		})
		b.Chunks = append(b.Chunks, store.Chunk{Op: "op_1", N: n})
	}
	if err := w.add(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return w
}

// swept waits until nothing is left to remove.
func swept(t *testing.T, db *sql.DB) {
	t.Helper()
	for end := time.Now().Add(time.Minute); query[int](t, db, `SELECT count(*) FROM removed`) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what was deleted is not being removed")
		}
	}
}

func TestDeleteLeavesNoRowBehind(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer shut(t, s)
	kept := createLong(t, s, sessionID(1))
	db := raw(t, dir)
	before := make(map[string]int)
	for _, table := range tables {
		if before[table] = query[int](t, db, `SELECT count(*) FROM `+table); before[table] == 0 {
			t.Fatalf("no row in %s", table)
		}
	}
	for range 2 {
		w := createLong(t, s, sessionID(2))
		if err := s.Delete(t.Context(), sessionID(2), w.epoch); err != nil {
			t.Fatal(err)
		}
	}
	swept(t, db)
	for _, table := range tables {
		if got := query[int](t, db, `SELECT count(*) FROM `+table); got != before[table] {
			t.Errorf("%d rows in %s, want %d", got, table, before[table])
		}
	}
	if err := kept.add(t.Context(), kept.batch(1)); err != nil {
		t.Error(err)
	}
}

// What a killed process had still to remove is removed by the next one.
func TestRemovingGoesOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	kept, w := createLong(t, s, sessionID(1)), createLong(t, s, sessionID(2))
	shut(t, s)
	db := raw(t, dir)
	before := query[int](t, db, `SELECT count(*) FROM events`)
	// As if the process had died right after the commit of the delete.
	if _, err := db.ExecContext(t.Context(), `
		INSERT INTO removed (session) SELECT key FROM sessions WHERE id = ?;
		DELETE FROM sessions WHERE id = ?`, sessionID(2), sessionID(2)); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	defer shut(t, s)
	swept(t, db)
	if got := query[int](t, db, `SELECT count(*) FROM events`); got != before/2 {
		t.Errorf("%d events, want %d", got, before/2)
	}
	kept.store = s
	if err := kept.add(t.Context(), kept.batch(1)); err != nil {
		t.Error(err)
	}
	w.store = s
	if err := w.add(t.Context(), w.batch(1)); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("append to what was deleted = %v, want ErrNotFound", err)
	}
}

// The key of a session stands for it in every table, so no other session may have it
// while rows are still removed by it.
func TestASessionThatIsBeingRemovedTakesNothingOfTheNext(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer shut(t, s)
	db := raw(t, dir)
	for round := range 5 {
		w := createLong(t, s, sessionID(1))
		if err := s.Delete(t.Context(), sessionID(1), w.epoch); err != nil {
			t.Fatal(err)
		}
		next := createLong(t, s, sessionID(2))
		swept(t, db)
		if events, err := s.Read(t.Context(), sessionID(2), 0, 1000); err != nil || uint64(len(events)) != next.index.Seq {
			t.Fatalf("round %d: %d events of %d, %v", round, len(events), next.index.Seq, err)
		}
		if err := s.Delete(t.Context(), sessionID(2), next.epoch); err != nil {
			t.Fatal(err)
		}
	}
}
