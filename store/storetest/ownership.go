package storetest

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testClaiming(t *testing.T, pair pairer) {
	ada := sessionID(1)

	t.Run("create stores a session with no owner", pair(func(t *testing.T, a, b server) {
		a.join(t, long)
		b.join(t, long)
		a.add(t, ada)
		if owner := a.owner(t, ada); owner != nil {
			t.Errorf("owner = %v, want none", owner)
		}
		b.claim(t, ada).add(t)
		seqs(t, all(t, a.Store, ada), 1, 2)
	}))

	t.Run("a session that another live server owns must be refused with ElsewhereError", pair(func(t *testing.T, a, b server) {
		me := a.join(t, long)
		b.join(t, long)
		w := create(t, a.Store, ada)
		_, err := b.Claim(t.Context(), ada, 0)
		elsewhere(t, "claim", err, ada, me)
		wantEpoch(t, b.Store, ada, w.epoch)
		w.add(t)
		if err := b.Rebuild(t.Context(), ada, dormouse.Rows{Session: w.index}); err != nil {
			t.Fatal(err)
		}
		_, err = b.Claim(t.Context(), ada, 0)
		elsewhere(t, "claim of what was written since", err, ada, me)
		if again := a.claim(t, ada); again.epoch <= w.epoch {
			t.Errorf("claim by the owner = %d after %d", again.epoch, w.epoch)
		}
		_, err = b.Claim(t.Context(), sessionID(2), 0)
		wantErr(t, "claim of an unknown session", err, dormouse.ErrNotFound)
	}))

	t.Run("a server whose own lease has run out must be refused with ErrLeaseLost", pair(func(t *testing.T, a, b server) {
		w := create(t, b.Store, ada)
		a.die(t, b)
		_, err := a.Claim(t.Context(), ada, 0)
		wantErr(t, "claim", err, dormouse.ErrLeaseLost)
		wantEpoch(t, b.Store, ada, w.epoch)
		a.join(t, long)
		a.claim(t, ada).add(t)
		if err := a.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = a.Claim(t.Context(), ada, 0)
		wantErr(t, "claim after leaving", err, dormouse.ErrLeaseLost)
	}))

	t.Run("who has not joined claims for nobody and must be refused by a live owner alone", pair(func(t *testing.T, a, b server) {
		w := create(t, b.Store, ada)
		if owner := b.owner(t, ada); owner != nil {
			t.Errorf("owner = %v, want none", owner)
		}
		me := a.join(t, long)
		mine := a.claim(t, ada)
		wantErr(t, "append by who had claimed for nobody", w.try(t.Context()), dormouse.ErrLeaseLost)
		_, err := b.Claim(t.Context(), ada, 0)
		elsewhere(t, "claim", err, ada, me)
		mine.add(t)
	}))

	t.Run("a lease does not fence the epoch does", pair(func(t *testing.T, a, b server) {
		b.join(t, long)
		b.add(t, ada)
		w := a.die(t, b, ada)[0]
		w.add(t) // no other server has joined
		theirs := b.claim(t, ada)
		if theirs.epoch <= w.epoch {
			t.Errorf("claim = %d after %d", theirs.epoch, w.epoch)
		}
		wantErr(t, "append by who lost the session", w.try(t.Context()), dormouse.ErrLeaseLost)
		late := w.batch(0)
		late.Chunks = []store.Chunk{{Op: opID(1), Text: "late"}}
		wantErr(t, "append of a chunk", a.Append(t.Context(), late), dormouse.ErrLeaseLost)
		wantErr(t, "delete", a.Delete(t.Context(), ada, w.epoch), dormouse.ErrLeaseLost)
		child := first(sessionID(2))
		child.Under = &dormouse.Fence{Session: ada, Epoch: w.epoch}
		wantErr(t, "create of a child", a.Create(t.Context(), child), dormouse.ErrLeaseLost)
		theirs.add(t)
		child.Under.Epoch = theirs.epoch
		if err := b.Create(t.Context(), child); err != nil {
			t.Errorf("create of a child by the owner: %v", err)
		}
		seqs(t, all(t, a.Store, ada), 1, 3)
		// A life that is over gives back nothing of what it lost.
		a.join(t, long)
		wantErr(t, "append in another life", w.try(t.Context()), dormouse.ErrLeaseLost)
	}))

	t.Run("two servers that want one session have it in turn", pair(func(t *testing.T, a, b server) {
		const appends = 60
		a.join(t, long)
		b.join(t, long)
		a.add(t, ada)
		var running sync.WaitGroup
		for _, s := range []server{a, b} {
			running.Go(func() {
				for n := 0; n < appends; {
					epoch, err := s.Claim(t.Context(), ada, 0)
					if _, busy := errors.AsType[*store.ElsewhereError](err); busy {
						time.Sleep(time.Millisecond)
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					index, err := s.Session(t.Context(), ada)
					if err != nil {
						t.Error(err)
						return
					}
					w := &writer{store: s.Store, id: ada, epoch: epoch, index: index}
					for range 3 {
						if err := w.try(t.Context()); err != nil {
							t.Errorf("append by the owner: %v", err)
							return
						}
						n++
					}
					if err := s.Release(t.Context(), ada, epoch); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		running.Wait()
		seqs(t, all(t, a.Store, ada), 1, 2*appends+1)
	}))
}

func testTaking(t *testing.T, pair pairer) {
	due := func(n int) func(*store.Batch) {
		return func(b *store.Batch) { b.Rows.Session.Due = at(n) }
	}
	take := func(t *testing.T, s server, n, limit int) []dormouse.SessionID {
		t.Helper()
		ids, err := s.Take(t.Context(), at(n), limit)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}

	t.Run("take makes this server the owner of sessions due at or before t that no live server owns most overdue first at most limit", pair(func(t *testing.T, a, b server) {
		me := a.join(t, long)
		b.join(t, long)
		for n := range 6 {
			a.add(t, sessionID(n), due(60-10*n))
		}
		a.add(t, sessionID(6)) // never due
		theirs := b.claim(t, sessionID(4))
		equal(t, "take of none", take(t, a, 60, 0), []dormouse.SessionID{})
		equal(t, "take", take(t, a, 40, 2), []dormouse.SessionID{sessionID(5), sessionID(3)})
		for _, id := range []dormouse.SessionID{sessionID(5), sessionID(3)} {
			equal(t, "owner", b.owner(t, id), &me)
			_, err := b.Claim(t.Context(), id, 0)
			elsewhere(t, "claim", err, id, me)
		}
		if owner := b.owner(t, sessionID(2)); owner != nil {
			t.Errorf("owner of what was not taken = %v", owner)
		}
		equal(t, "take of the rest", take(t, a, 50, 9), []dormouse.SessionID{sessionID(2), sessionID(1)})
		equal(t, "take again", take(t, a, 50, 9), []dormouse.SessionID{})
		equal(t, "take by the other", take(t, b, 60, 9), []dormouse.SessionID{sessionID(0)})
		theirs.add(t)
	}))

	t.Run("take makes this server the owner of what a server had whose lease has run out", pair(func(t *testing.T, a, b server) {
		b.join(t, long)
		b.add(t, sessionID(1), due(1))
		b.add(t, sessionID(2), due(2))
		w := a.die(t, b, sessionID(1), sessionID(2))[0]
		equal(t, "take", take(t, b, 9, 9), []dormouse.SessionID{sessionID(1), sessionID(2)})
		wantEpoch(t, b.Store, sessionID(1), w.epoch)
		if mine := b.claim(t, sessionID(1)); mine.epoch <= w.epoch {
			t.Errorf("claim = %d after %d", mine.epoch, w.epoch)
		}
		wantErr(t, "append by who lost the session", w.try(t.Context()), dormouse.ErrLeaseLost)
	}))

	t.Run("take must refuse a server whose own lease has run out with ErrLeaseLost", pair(func(t *testing.T, a, b server) {
		a.add(t, sessionID(1), due(1))
		_, err := a.Take(t.Context(), at(9), 9)
		wantErr(t, "take by who never joined", err, dormouse.ErrLeaseLost)
		a.die(t, b)
		_, err = a.Take(t.Context(), at(9), 9)
		wantErr(t, "take", err, dormouse.ErrLeaseLost)
		b.join(t, long)
		equal(t, "take by the other", take(t, b, 9, 9), []dormouse.SessionID{sessionID(1)})
	}))

	t.Run("take must return no session to two servers", pair(func(t *testing.T, a, b server) {
		const sessions, takers = 120, 3
		a.join(t, long)
		b.join(t, long)
		for n := range sessions {
			a.add(t, sessionID(n), due(n%7))
		}
		var mu sync.Mutex
		taken := make(map[dormouse.SessionID]int) // guarded by mu
		var running sync.WaitGroup
		for n := range 2 * takers {
			s := []server{a, b}[n%2]
			running.Go(func() {
				// What another is taking at this instant may be passed over.
				for end := time.Now().Add(patience); time.Now().Before(end); {
					ids, err := s.Take(t.Context(), at(9), 5)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, id := range ids {
						taken[id]++
					}
					done := len(taken) == sessions
					mu.Unlock()
					if done {
						return
					}
				}
			})
		}
		running.Wait()
		for n := range sessions {
			if times := taken[sessionID(n)]; times != 1 {
				t.Errorf("%s was taken %d times", sessionID(n), times)
			}
		}
	}))
}

func testReleasing(t *testing.T, pair pairer) {
	ada := sessionID(1)

	t.Run("release must give up a session that this server owns under epoch", pair(func(t *testing.T, a, b server) {
		a.join(t, long)
		b.join(t, long)
		w := create(t, a.Store, ada)
		if err := a.Release(t.Context(), ada, w.epoch); err != nil {
			t.Fatal(err)
		}
		if owner := b.owner(t, ada); owner != nil {
			t.Errorf("owner = %v, want none", owner)
		}
		wantEpoch(t, b.Store, ada, w.epoch)
		if theirs := b.claim(t, ada); theirs.epoch <= w.epoch {
			t.Errorf("claim = %d after %d", theirs.epoch, w.epoch)
		}
	}))

	t.Run("release must do nothing if this server does not own the session under epoch", pair(func(t *testing.T, a, b server) {
		me := a.join(t, long)
		b.join(t, long)
		w := create(t, a.Store, ada)
		old := w.epoch
		w = a.claim(t, ada)
		for _, release := range []struct {
			by    server
			epoch store.Epoch
		}{{a, 0}, {a, old}, {a, w.epoch + 1}, {b, w.epoch}, {b, old}} {
			if err := release.by.Release(t.Context(), ada, release.epoch); err != nil {
				t.Error(err)
			}
			equal(t, "owner", b.owner(t, ada), &me)
		}
		w.add(t)
		if err := a.Release(t.Context(), sessionID(2), 1); err != nil {
			t.Errorf("release of an unknown session: %v", err)
		}
		if err := a.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		theirs := b.claim(t, ada)
		for _, epoch := range []store.Epoch{w.epoch, theirs.epoch} {
			if err := a.Release(t.Context(), ada, epoch); err != nil {
				t.Error(err)
			}
			if owner := a.owner(t, ada); owner == nil || owner.Name != b.described().Name {
				t.Errorf("owner = %v, want the one who claimed last", owner)
			}
		}
		theirs.add(t)
	}))
}

func testWhere(t *testing.T, pair pairer) {
	t.Run("where must say of each session that exists how far its log goes and which live server owns it if any", pair(func(t *testing.T, a, b server) {
		b.add(t, sessionID(1))
		a.die(t, b, sessionID(1))[0].add(t)
		one, two := a.join(t, long), b.join(t, long)
		mine, theirs := create(t, a.Store, sessionID(2)), create(t, b.Store, sessionID(3))
		a.add(t, sessionID(4))
		gone := create(t, b.Store, sessionID(5))
		if err := b.Delete(t.Context(), gone.id, gone.epoch); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			mine.add(t)
		}
		theirs.add(t)
		var ids []dormouse.SessionID
		for n := range 500 {
			ids = append(ids, sessionID(n))
		}
		for _, s := range []server{a, b} {
			places, err := s.Where(t.Context(), ids...)
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(places, func(x, y store.Location) int { return slices.Index(ids, x.Session) - slices.Index(ids, y.Session) })
			equal(t, "places", places, []store.Location{
				{Session: sessionID(1), Seq: 2},
				{Session: sessionID(2), Seq: 4, Owner: &one},
				{Session: sessionID(3), Seq: 2, Owner: &two},
				{Session: sessionID(4), Seq: 1},
			})
		}
		if places, err := a.Where(t.Context()); err != nil || len(places) != 0 {
			t.Errorf("where of none = %v, %v", places, err)
		}
	}))
}
