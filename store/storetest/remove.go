package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testRemoving(t *testing.T, fresh opener) {
	ada := sessionID(1)

	// written is a session with something in every table.
	written := func(t *testing.T, s store.Store, id dormouse.SessionID) *writer {
		w := create(t, s, id, func(b *store.Batch) { b.Rows.Session.Tags, b.Rows.Session.Search = []string{"tag"}, "text" })
		w.add(t, func(b *store.Batch) {
			b.Rows.Session.Due = at(5)
			b.Rows.Prompts = []dormouse.PromptRecord{prompt(1, 2)}
			b.Rows.Ops = []dormouse.OpRecord{op(1, at(1))}
			b.Chunks = []store.Chunk{{Op: opID(1), Text: "one"}}
			b.State = &dormouse.StateCache{Seq: 2, Version: 1, Data: []byte("state")}
		})
		return w
	}

	t.Run("delete must make a session be gone for every reader at once", fresh(func(t *testing.T, s store.Store) {
		w, other := written(t, s, ada), written(t, s, sessionID(2))
		before := contents(t, s, other.id)
		if err := s.Delete(t.Context(), ada, w.epoch); err != nil {
			t.Fatal(err)
		}
		gone(t, s, ada)
		wantErr(t, "append", w.try(t.Context()), dormouse.ErrNotFound)
		_, err := s.Claim(t.Context(), ada, 0)
		wantErr(t, "claim", err, dormouse.ErrNotFound)
		wantErr(t, "rebuild", s.Rebuild(t.Context(), ada, dormouse.Rows{Session: w.index}), dormouse.ErrNotFound)
		equal(t, "the other session", contents(t, s, other.id), before)
		other.add(t)
	}))

	t.Run("delete must be fenced as an append is", fresh(func(t *testing.T, s store.Store) {
		w := written(t, s, ada)
		before := contents(t, s, ada)
		for _, epoch := range []store.Epoch{0, w.epoch - 1, w.epoch + 1} {
			wantErr(t, fmt.Sprintf("delete under epoch %d of %d", epoch, w.epoch), s.Delete(t.Context(), ada, epoch), dormouse.ErrLeaseLost)
		}
		if _, err := s.Claim(t.Context(), ada, 0); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "delete under a stale epoch", s.Delete(t.Context(), ada, w.epoch), dormouse.ErrLeaseLost)
		equal(t, "contents", contents(t, s, ada), before)
	}))

	t.Run("delete of a session that is not there must succeed", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		for range 2 {
			if err := s.Delete(t.Context(), ada, w.epoch); err != nil {
				t.Error(err)
			}
		}
		if err := s.Delete(t.Context(), sessionID(2), 0); err != nil {
			t.Error(err)
		}
	}))

	t.Run("a session with the name of a deleted one has nothing of it", fresh(func(t *testing.T, s store.Store) {
		for range 3 {
			w := written(t, s, ada)
			if err := s.Delete(t.Context(), ada, w.epoch); err != nil {
				t.Fatal(err)
			}
			again, other := create(t, s, ada), create(t, s, sessionID(2))
			for _, id := range []dormouse.SessionID{ada, sessionID(2)} {
				equal(t, "contents", contents(t, s, id), everything{Index: first(id).Rows.Session, Events: first(id).Events})
			}
			for _, w := range []*writer{again, other} {
				if err := s.Delete(t.Context(), w.id, w.epoch); err != nil {
					t.Fatal(err)
				}
			}
		}
	}))

	t.Run("of an append and a delete at once the log knows one order", fresh(func(t *testing.T, s store.Store) {
		ws := createMany(t, s, writers)
		each(ws, func(n int, w *writer) {
			if n%2 == 0 {
				if err := s.Delete(t.Context(), w.id, w.epoch); err != nil {
					t.Error(err)
				}
				wantErr(t, "append to a deleted session", w.try(t.Context()), dormouse.ErrNotFound)
				return
			}
			for range 5 {
				if err := w.try(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
		for n, w := range ws {
			if n%2 == 0 {
				gone(t, s, w.id)
			} else {
				seqs(t, all(t, s, w.id), 1, 6)
			}
		}
	}))
}

// gone fails unless no question about a session has an answer.
func gone(t *testing.T, s store.Store, id dormouse.SessionID) {
	t.Helper()
	ctx := t.Context()
	_, err := s.Session(ctx, id)
	wantErr(t, "session", err, dormouse.ErrNotFound)
	_, err = s.Epoch(ctx, id)
	wantErr(t, "epoch", err, dormouse.ErrNotFound)
	_, err = s.Prompt(ctx, id, promptID(1))
	wantErr(t, "prompt", err, dormouse.ErrNotFound)
	everyone, err := s.All(ctx, "", 1<<20)
	if err != nil || slices.Contains(everyone, id) {
		t.Errorf("all = %v, %v", everyone, err)
	}
	due, err := s.Due(ctx, time.Unix(1<<40, 0), 1<<20)
	if err != nil || slices.Contains(due, id) {
		t.Errorf("due = %v, %v", due, err)
	}
	listed := list(t, s, store.Query{Tenant: "acme", Archived: true, Limit: 1 << 20})
	if slices.ContainsFunc(listed, func(i dormouse.SessionRow) bool { return i.Session == id }) {
		t.Errorf("%s is listed", id)
	}
	nothing(t, "events", func() (int, error) { e, err := s.Read(ctx, id, 0, 10); return len(e), err })
	nothing(t, "prompts", func() (int, error) { p, err := s.Prompts(ctx, id); return len(p), err })
	nothing(t, "ops", func() (int, error) { o, err := s.Ops(ctx, id, 10); return len(o), err })
	nothing(t, "chunks", func() (int, error) { c, err := s.Chunks(ctx, id, opID(1)); return len(c), err })
	nothing(t, "state", func() (int, error) { st, err := s.State(ctx, id); return len(st.Data), err })
}

func nothing(t *testing.T, what string, count func() (int, error)) {
	t.Helper()
	if n, err := count(); n != 0 || err != nil {
		t.Errorf("%d of %s left, %v", n, what, err)
	}
}
