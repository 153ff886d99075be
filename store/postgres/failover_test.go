package postgres_test

import (
	"errors"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/pgserver"
)

// A replica that was promoted before it heard of the last commits knows neither
// the claims nor the events they held. Nothing can bring those back, but no
// server may go on as if they were still there.
func TestAFailoverThatForgetsLetsNoOldOwnerGoOn(t *testing.T) {
	own, err := pgserver.Start(t.Context(), "fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := own.CreateDB(t.Context(), "dormouse", ""); err != nil {
		t.Fatal(err)
	}
	dsn := own.DSN("dormouse")
	a := open(t, dsn)
	remembered := create(t, a, sessionID(1))
	if err := own.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Forgotten: a claim of the one, an event of the other.
	forgotten := *remembered
	if err := forgotten.claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := forgotten.add(t.Context(), forgotten.batch(1)); err != nil {
		t.Fatal(err)
	}
	if err := own.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}

	b := open(t, dsn)
	if err := forgotten.add(t.Context(), forgotten.batch(1)); !errors.Is(err, dormouse.ErrLeaseLost) {
		t.Errorf("append under a claim that is forgotten = %v, want ErrLeaseLost", err)
	}
	remembered.index.Seq++ // it was told of an event
	if err := remembered.add(t.Context(), remembered.batch(1)); !errors.Is(err, dormouse.ErrConflict) {
		t.Errorf("append after an event that is forgotten = %v, want ErrConflict", err)
	}
	next := newWriter(b, sessionID(1))
	if err := next.claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next.epoch <= forgotten.epoch {
		t.Errorf("claim = %d, after %d was given out before", next.epoch, forgotten.epoch)
	}
	for range 2 {
		if err := next.add(t.Context(), next.batch(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := forgotten.add(t.Context(), forgotten.batch(1)); !errors.Is(err, dormouse.ErrLeaseLost) {
		t.Errorf("append under a claim that is forgotten = %v, want ErrLeaseLost", err)
	}
	checkLog(t, b, sessionID(1), 3)
}
