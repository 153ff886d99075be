package storetest

import (
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testMarking(t *testing.T, fresh opener) {
	ada := sessionID(1)
	t.Run("mark must set what Index.Damage says of a session fenced by the epoch and an append must leave it as it is", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		damage := func(want string) {
			t.Helper()
			if index, err := s.Session(t.Context(), ada); err != nil || index.Damage != want {
				t.Errorf("damage = %q, %v, want %q", index.Damage, err, want)
			}
		}
		damage("")
		if err := s.Mark(t.Context(), ada, w.epoch, "event 1 cannot be read"); err != nil {
			t.Fatal(err)
		}
		w.index.Title = "another"
		w.add(t)
		damage("event 1 cannot be read")
		for _, epoch := range []store.Epoch{0, w.epoch - 1, w.epoch + 1} {
			wantErr(t, "mark under another epoch", s.Mark(t.Context(), ada, epoch, "not at all"), dormouse.ErrLeaseLost)
		}
		wantErr(t, "mark of a session that is not there", s.Mark(t.Context(), sessionID(9), 1, "not at all"), dormouse.ErrLeaseLost)
		damage("event 1 cannot be read")
		if err := s.Mark(t.Context(), ada, w.epoch, ""); err != nil {
			t.Fatal(err)
		}
		damage("")
	}))
}
