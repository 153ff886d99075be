package storetest

import (
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testRebuilding(t *testing.T, fresh opener) {
	ada := sessionID(1)

	// written is a session with something in every table.
	written := func(t *testing.T, s store.Store) *writer {
		w := create(t, s, ada)
		w.add(t, func(b *store.Batch) {
			b.Rows.Session.Due = at(5)
			b.Rows.Prompts = []dormouse.PromptRecord{prompt(1, 2), prompt(2, 2)}
			b.Rows.Ops = []dormouse.OpRecord{op(1, at(1)), op(2, at(2)), op(3, at(3))}
			b.Chunks = []store.Chunk{{Op: opID(1), Text: "one"}, {Op: opID(2), Text: "two"}, {Op: opID(3), Text: "three"}}
			b.State = &dormouse.StateCache{Seq: 2, Version: 1, Data: []byte("wrong")}
		})
		return w
	}

	t.Run("rebuild must replace every derived row of a session with rows keeping events epoch and chunks of open ops", fresh(func(t *testing.T, s store.Store) {
		w := written(t, s)
		events := all(t, s, ada)
		rows := dormouse.Rows{
			Session: w.index,
			Prompts: []dormouse.PromptRecord{prompt(3, 2)},
			Ops:     []dormouse.OpRecord{op(1, at(1)), finished(op(2, at(2)), dormouse.OpDone)},
		}
		rows.Session.Title, rows.Session.Due = "rebuilt", at(6)
		if err := s.Rebuild(t.Context(), ada, rows); err != nil {
			t.Fatal(err)
		}
		equal(t, "contents", contents(t, s, ada), everything{
			Index: rows.Session, Events: events, Prompts: rows.Prompts,
			Ops:    []dormouse.OpRecord{rows.Ops[1], rows.Ops[0]},
			Chunks: []store.Chunk{{Op: opID(1), Text: "one"}},
		})
		for _, closed := range []dormouse.OpID{opID(2), opID(3)} {
			if chunks, err := s.Chunks(t.Context(), ada, closed); err != nil || len(chunks) != 0 {
				t.Errorf("chunks of %s = %v, %v, want none", closed, chunks, err)
			}
		}
		due, err := s.Due(t.Context(), at(5), 10)
		if err != nil || len(due) != 0 {
			t.Errorf("due = %v, %v, want none before the rebuilt time", due, err)
		}
		w.add(t) // under the epoch it had
	}))

	t.Run("the cached state must be gone afterwards", fresh(func(t *testing.T, s store.Store) {
		w := written(t, s)
		if err := s.Rebuild(t.Context(), ada, dormouse.Rows{Session: w.index}); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, s, ada); got.State.Seq != 0 || got.size() != 0 {
			t.Errorf("after a rebuild without rows: %+v", got)
		}
	}))

	t.Run("rows that do not reach the last event must be refused with ErrConflict", fresh(func(t *testing.T, s store.Store) {
		w := written(t, s)
		before := contents(t, s, ada)
		for _, seq := range []uint64{1, 3} {
			rows := dormouse.Rows{Session: w.index}
			rows.Session.Seq = seq
			wantErr(t, "rebuild", s.Rebuild(t.Context(), ada, rows), dormouse.ErrConflict)
		}
		equal(t, "contents", contents(t, s, ada), before)
	}))

	t.Run("rebuild of an unknown session is ErrNotFound", fresh(func(t *testing.T, s store.Store) {
		rows := first(ada).Rows
		wantErr(t, "rebuild", s.Rebuild(t.Context(), ada, *rows), dormouse.ErrNotFound)
		rows.Session.Session = sessionID(2)
		wantErr(t, "rebuild with the rows of another", s.Rebuild(t.Context(), ada, *rows), dormouse.ErrInvalid)
	}))

	t.Run("rebuild leaves other sessions alone", fresh(func(t *testing.T, s store.Store) {
		w := written(t, s)
		other := create(t, s, sessionID(2))
		other.add(t, func(b *store.Batch) {
			b.Rows.Prompts = []dormouse.PromptRecord{prompt(1, 2)}
			b.Rows.Ops = []dormouse.OpRecord{op(1, at(1))}
			b.Chunks = []store.Chunk{{Op: opID(1), Text: "one"}}
			b.State = &dormouse.StateCache{Seq: 2, Data: []byte("state")}
		})
		before := contents(t, s, other.id)
		if err := s.Rebuild(t.Context(), ada, dormouse.Rows{Session: w.index}); err != nil {
			t.Fatal(err)
		}
		equal(t, "contents", contents(t, s, other.id), before)
	}))
}
