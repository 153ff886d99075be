package storetest

import (
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testCarrying(t *testing.T, fresh opener) {
	ada := sessionID(1)

	t.Run("epoch must return the newest epoch of a session or ErrNotFound", fresh(func(t *testing.T, s store.Store) {
		_, err := s.Epoch(t.Context(), ada)
		wantErr(t, "epoch", err, dormouse.ErrNotFound)
		if err := s.Create(t.Context(), first(ada)); err != nil {
			t.Fatal(err)
		}
		wantEpoch(t, s, ada, 0)
		for range 3 {
			epoch, err := s.Claim(t.Context(), ada, 0)
			if err != nil {
				t.Fatal(err)
			}
			wantEpoch(t, s, ada, epoch)
		}
	}))

	t.Run("import stores the first events of a session under b.Epoch so that the rest can be appended under it and the next claim is higher", fresh(func(t *testing.T, s store.Store) {
		b := first(ada)
		b.Epoch = 1 << 40
		b.Rows.Prompts = []dormouse.PromptRecord{prompt(1, 1)}
		b.Rows.Session.Tags = []string{"carried"}
		if err := s.Import(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		wantEpoch(t, s, ada, b.Epoch)
		equal(t, "contents", contents(t, s, ada), everything{Index: b.Rows.Session, Events: b.Events, Prompts: b.Rows.Prompts})
		w := &writer{store: s, id: ada, epoch: b.Epoch, index: b.Rows.Session}
		w.add(t)
		epoch, err := s.Claim(t.Context(), ada, 0)
		if err != nil || epoch <= b.Epoch {
			t.Errorf("claim = %d, %v, want more than %d", epoch, err, b.Epoch)
		}
		wantErr(t, "append under the epoch of before", w.try(t.Context()), dormouse.ErrLeaseLost)
		seqs(t, all(t, s, ada), 1, 2)
	}))

	t.Run("import of a session that nobody has claimed leaves it so", fresh(func(t *testing.T, s store.Store) {
		if err := s.Import(t.Context(), first(ada)); err != nil {
			t.Fatal(err)
		}
		wantEpoch(t, s, ada, 0)
		w := &writer{store: s, id: ada, index: first(ada).Rows.Session}
		wantErr(t, "append before any claim", w.try(t.Context()), dormouse.ErrLeaseLost)
	}))

	t.Run("import refuses what create refuses but an epoch", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		again := first(ada)
		again.Epoch = 7
		wantErr(t, "import of a session that exists", s.Import(t.Context(), again), dormouse.ErrConflict)
		wantEpoch(t, s, ada, w.epoch)
		late := first(sessionID(2))
		late.After, late.Events[0].Seq, late.Rows.Session.Seq = 1, 2, 2
		wantErr(t, "import that begins at 2", s.Import(t.Context(), late), dormouse.ErrInvalid)
		wantErr(t, "import of nothing", s.Import(t.Context(), store.Batch{Session: sessionID(2)}), dormouse.ErrInvalid)
		epoch := first(sessionID(2))
		epoch.Epoch = 1
		wantErr(t, "create under an epoch", s.Create(t.Context(), epoch), dormouse.ErrInvalid)
	}))
}

func wantEpoch(t *testing.T, s store.Store, id dormouse.SessionID, want store.Epoch) {
	t.Helper()
	if epoch, err := s.Epoch(t.Context(), id); err != nil || epoch != want {
		t.Errorf("epoch of %s = %d, %v, want %d", id, epoch, err, want)
	}
}
