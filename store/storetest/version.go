package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// ofTheFuture makes a log need a newer program than this one.
func ofTheFuture(b *store.Batch) { b.Rows.Session.Needs = dormouse.LogVersion + 1 }

// isNewer fails unless err says that a log needs a newer program.
func isNewer(t *testing.T, what string, err error, id dormouse.SessionID) {
	t.Helper()
	newer, ok := errors.AsType[*dormouse.NewerLogError](err)
	if !ok || newer.Session != id || newer.Needs != dormouse.LogVersion+1 {
		t.Errorf("%s = %v, want that %s needs a newer program", what, err, id)
	}
}

func testVersions(t *testing.T, fresh opener) {
	t.Run("a session whose log needs a newer program must not be claimed and its epoch must stay as it is", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, sessionID(1))
		w.add(t, ofTheFuture)
		if index, err := s.Session(t.Context(), w.id); err != nil || index.Needs != dormouse.LogVersion+1 {
			t.Errorf("the row needs version %d, %v", index.Needs, err)
		}
		_, err := s.Claim(t.Context(), w.id, 0)
		isNewer(t, "claim", err, w.id)
		if epoch, err := s.Epoch(t.Context(), w.id); err != nil || epoch != w.epoch {
			t.Errorf("epoch = %d, %v, want %d", epoch, err, w.epoch)
		}
		w.add(t) // its owner goes on
		w.index.Needs = dormouse.LogVersion
		w.add(t)
		if _, err := s.Claim(t.Context(), w.id, 0); err != nil {
			t.Errorf("claim of what this program knows: %v", err)
		}
	}))
	t.Run("due and next due must leave out sessions whose log needs a newer program", fresh(func(t *testing.T, s store.Store) {
		due := func(n int) func(*store.Batch) {
			return func(b *store.Batch) { b.Rows.Session.Due = at(n) }
		}
		for n, change := range []func(*store.Batch){ofTheFuture, func(*store.Batch) {}} {
			b := first(sessionID(n + 1))
			due(n + 1)(&b)
			change(&b)
			if err := s.Create(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		ids, err := s.Due(t.Context(), at(9), 9)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "due", ids, []dormouse.SessionID{sessionID(2)})
		next, err := s.NextDue(t.Context(), at(0))
		if err != nil || !next.Equal(at(2)) {
			t.Errorf("next due = %s, %v, want %s", next, err, at(2))
		}
	}))
	t.Run("rebuild must replace what a log is said to need", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, sessionID(1))
		w.add(t, ofTheFuture)
		w.index.Needs = dormouse.LogVersion
		if err := s.Rebuild(t.Context(), w.id, dormouse.Rows{Session: w.index}); err != nil {
			t.Fatal(err)
		}
		if index, err := s.Session(t.Context(), w.id); err != nil || index.Needs != dormouse.LogVersion {
			t.Errorf("the row needs version %d, %v", index.Needs, err)
		}
	}))
}

func testVersionsShared(t *testing.T, pair pairer) {
	id := sessionID(1)
	overdue := func(b *store.Batch) { b.Rows.Session.Due = start }
	t.Run("take must leave sessions whose log needs a newer program to others, with their owner", pair(func(t *testing.T, a, b server) {
		b.join(t, long)
		a.add(t, id, overdue, ofTheFuture)
		a.add(t, sessionID(2), overdue)
		a.add(t, sessionID(3), overdue)
		ids, err := b.Take(t.Context(), at(9), 9, sessionID(3))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "taken", ids, []dormouse.SessionID{sessionID(2)})
		_, err = b.Claim(t.Context(), id, 0)
		isNewer(t, "claim", err, id)
		for _, left := range []dormouse.SessionID{id, sessionID(3)} {
			if owner := b.owner(t, left); owner != nil {
				t.Errorf("%s is owned by %s", left, owner.Name)
			}
		}
	}))
	t.Run("a claim of what a live server owns must say that one, whatever its log needs", pair(func(t *testing.T, a, b server) {
		me := a.join(t, long)
		b.join(t, long)
		a.add(t, id)
		w := a.claim(t, id)
		w.add(t, ofTheFuture, overdue)
		_, err := b.Claim(t.Context(), id, 0)
		elsewhere(t, "claim", err, id, me)
	}))
	t.Run("what a server that died had must stay nobody's if its log needs a newer program", pair(func(t *testing.T, a, b server) {
		a.add(t, id)
		b.join(t, long)
		ws := a.die(t, b, id)
		ws[0].add(t, ofTheFuture, overdue)
		if ids, err := b.Take(t.Context(), time.Now(), 9); err != nil || len(ids) != 0 {
			t.Errorf("taken = %v, %v", ids, err)
		}
		_, err := b.Claim(t.Context(), id, 0)
		isNewer(t, "claim", err, id)
		ws[0].add(t) // its epoch is still the newest
	}))
}
