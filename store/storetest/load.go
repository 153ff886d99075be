package storetest

import (
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testLoading(t *testing.T, fresh opener) {
	ada := sessionID(1)

	t.Run("state must return the newest cached fold or a zero state if there is none", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		state := func() dormouse.StateCache { return contents(t, s, ada).State }
		equal(t, "state", state(), dormouse.StateCache{})
		one := dormouse.StateCache{Seq: 2, Version: 3, Data: []byte("\x00folded\xff")}
		w.add(t, func(b *store.Batch) { b.State = &one })
		equal(t, "state", state(), one)
		w.add(t)
		equal(t, "state after an append without one", state(), one)
		two := dormouse.StateCache{Seq: 3, Version: 4, Data: []byte("again")}
		alone := w.batch(0)
		alone.State = &two
		if err := s.Append(t.Context(), alone); err != nil {
			t.Fatal(err)
		}
		equal(t, "state written alone", state(), two)
		got, err := s.State(t.Context(), sessionID(2))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "state of an unknown session", got, dormouse.StateCache{})
	}))

	t.Run("chunks must return an open op's chunks in order", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		w.add(t, func(b *store.Batch) {
			b.Rows.Ops = []dormouse.OpRecord{op(1, start), op(2, start)}
			b.Chunks = []store.Chunk{{Op: opID(1), N: 0, Text: "a "}}
		})
		b := w.batch(0)
		b.Chunks = []store.Chunk{{Op: opID(1), N: 2, Text: "🐭"}, {Op: opID(1), N: 1, Text: ""}, {Op: opID(2), N: 0, Text: "other"}}
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		b.Chunks = []store.Chunk{{Op: opID(1), N: 10, Text: "ten"}}
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		equal(t, "chunks", contents(t, s, ada).Chunks, []store.Chunk{
			{Op: opID(1), N: 0, Text: "a "}, {Op: opID(1), N: 1, Text: ""}, {Op: opID(1), N: 2, Text: "🐭"}, {Op: opID(1), N: 10, Text: "ten"},
		})
		seqs(t, all(t, s, ada), 1, 2)
		if got, err := s.Chunks(t.Context(), sessionID(2), opID(1)); err != nil || len(got) != 0 {
			t.Errorf("chunks of an unknown session = %v, %v, want none", got, err)
		}
	}))

	t.Run("a chunk must replace the one its op already has at N", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, ada)
		for _, text := range []string{"once", "twice"} {
			w.add(t, func(b *store.Batch) {
				b.Rows.Ops = []dormouse.OpRecord{op(1, start)}
				b.Chunks = []store.Chunk{{Op: opID(1), Text: text}}
			})
		}
		equal(t, "chunks", contents(t, s, ada).Chunks, []store.Chunk{{Op: opID(1), Text: "twice"}})
	}))

	for _, status := range []dormouse.OpStatus{dormouse.OpDone, dormouse.OpLost} {
		t.Run("the chunks of an op must be gone once a row says the op is no longer open but "+string(status), fresh(func(t *testing.T, s store.Store) {
			w := create(t, s, ada)
			open, other := op(1, start), op(2, start)
			seen := []store.Chunk{{Op: opID(1), Text: "seen"}, {Op: opID(2), Text: "kept"}}
			w.add(t, func(b *store.Batch) {
				b.Rows.Ops, b.Chunks = []dormouse.OpRecord{open, other}, seen
			})
			w.add(t, func(b *store.Batch) { b.Rows.Ops = []dormouse.OpRecord{open} })
			equal(t, "chunks of an op that is still open", contents(t, s, ada).Chunks, seen[:1])
			w.add(t, func(b *store.Batch) {
				b.Rows.Ops, b.Chunks = []dormouse.OpRecord{finished(open, status)}, []store.Chunk{{Op: opID(1), N: 1, Text: "last"}}
			})
			late := w.batch(0)
			late.Chunks = []store.Chunk{{Op: opID(1), N: 2, Text: "late"}}
			if err := s.Append(t.Context(), late); err != nil {
				t.Fatal(err)
			}
			equal(t, "chunks of an op that ended", contents(t, s, ada).Chunks, []store.Chunk(nil))
			got, err := s.Chunks(t.Context(), ada, opID(2))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "chunks of the other op", got, seen[1:])
		}))
	}
}

func testDue(t *testing.T, fresh opener) {
	due := func(tm time.Time) func(*store.Batch) {
		return func(b *store.Batch) { b.Rows.Session.Due = tm }
	}

	t.Run("due must list sessions due at or before t most overdue first at most limit", fresh(func(t *testing.T, s store.Store) {
		for n, tm := range []time.Time{at(30), {}, at(10), dormouse.DueNow, at(20), at(40)} {
			create(t, s, sessionID(n), due(tm))
		}
		for _, test := range []struct {
			t     time.Time
			limit int
			want  []dormouse.SessionID
		}{
			{at(30), 10, []dormouse.SessionID{sessionID(3), sessionID(2), sessionID(4), sessionID(0)}},
			{at(29), 10, []dormouse.SessionID{sessionID(3), sessionID(2), sessionID(4)}},
			{at(99), 2, []dormouse.SessionID{sessionID(3), sessionID(2)}},
			{at(0), 10, []dormouse.SessionID{sessionID(3)}},
			{dormouse.DueNow, 10, []dormouse.SessionID{sessionID(3)}},
			{time.Time{}, 10, nil},
			{at(99), 0, nil},
		} {
			got, err := s.Due(t.Context(), test.t, test.limit)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, test.t.String(), got, test.want)
		}
	}))

	t.Run("next due must return the earliest due time after t or the zero time", fresh(func(t *testing.T, s store.Store) {
		for n, tm := range []time.Time{at(30), {}, at(10), dormouse.DueNow} {
			create(t, s, sessionID(n), due(tm))
		}
		for _, test := range []struct{ t, want time.Time }{
			{time.Time{}, dormouse.DueNow}, {dormouse.DueNow, at(10)}, {at(9), at(10)}, {at(10), at(30)}, {at(30), time.Time{}},
		} {
			got, err := s.NextDue(t.Context(), test.t)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Equal(test.want) || got.IsZero() != test.want.IsZero() {
				t.Errorf("next due after %v = %v, want %v", test.t, got, test.want)
			}
		}
	}))

	t.Run("a session is due when its newest row says so", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, sessionID(1))
		for _, step := range []struct {
			due  time.Time
			want []dormouse.SessionID
		}{
			{at(10), nil},
			{dormouse.DueNow, []dormouse.SessionID{w.id}},
			{time.Time{}, nil},
			{at(1), []dormouse.SessionID{w.id}},
		} {
			w.add(t, due(step.due))
			got, err := s.Due(t.Context(), at(5), 10)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, step.due.String(), got, step.want)
		}
	}))

	t.Run("nothing is ever due in an empty store", fresh(func(t *testing.T, s store.Store) {
		ids, err := s.Due(t.Context(), at(1<<40), 10)
		if err != nil || len(ids) != 0 {
			t.Errorf("due = %v, %v", ids, err)
		}
		next, err := s.NextDue(t.Context(), time.Time{})
		if err != nil || !next.IsZero() {
			t.Errorf("next due = %v, %v", next, err)
		}
	}))
}
