package storetest

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func testFleet(t *testing.T, pair pairer) {
	ada := sessionID(1)

	t.Run("join must give an incarnation that was never given before", pair(func(t *testing.T, a, b server) {
		given := make(map[uint64]bool)
		for range 3 {
			for _, s := range []server{a, b, a} {
				me := s.join(t, long)
				if me.Incarnation == 0 || given[me.Incarnation] {
					t.Errorf("incarnation %d after %v", me.Incarnation, given)
				}
				given[me.Incarnation] = true
				want := s.described()
				want.Incarnation = me.Incarnation
				equal(t, "server", me, want)
			}
			for _, s := range []server{a, b} {
				if err := s.Leave(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}))

	t.Run("join must give no incarnation to two servers that join at once", pair(func(t *testing.T, a, b server) {
		var mu sync.Mutex
		given := make(map[uint64]bool) // guarded by mu
		var running sync.WaitGroup
		for _, s := range []server{a, b} {
			running.Go(func() {
				for range 20 {
					me, err := s.Join(t.Context(), s.described(), long)
					mu.Lock()
					if err != nil || given[me.Incarnation] {
						t.Errorf("join = %v, %v", me, err)
					}
					given[me.Incarnation] = true
					mu.Unlock()
				}
			})
		}
		running.Wait()
	}))

	t.Run("a server at another place than one that lives must be refused with ErrConflict", pair(func(t *testing.T, a, b server) {
		a.join(t, long)
		there := b.described()
		there.Place = "there"
		_, err := b.Join(t.Context(), there, long)
		wantErr(t, "join at another place", err, dormouse.ErrConflict)
		wantErr(t, "renew by who was refused", b.Renew(t.Context()), dormouse.ErrLeaseLost)
		if got := a.servers(t); len(got) != 1 {
			t.Errorf("servers = %v, want one", got)
		}
		a.die(t, b)
		if _, err := b.Join(t.Context(), there, long); err != nil {
			t.Errorf("join at another place once nobody lives: %v", err)
		}
		_, err = a.Join(t.Context(), a.described(), long)
		wantErr(t, "join where nobody lives any more", err, dormouse.ErrConflict)
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.join(t, long)
	}))

	t.Run("who joins again must give up the life it had with all that it owned", pair(func(t *testing.T, a, b server) {
		a.join(t, long)
		other := b.join(t, long)
		w := create(t, a.Store, ada)
		again := a.join(t, long)
		equal(t, "servers", b.servers(t), []store.Server{other, again})
		if owner := b.owner(t, ada); owner != nil {
			t.Errorf("owner = %v, want none", owner)
		}
		if epoch := b.claim(t, ada).epoch; epoch <= w.epoch {
			t.Errorf("claim = %d after %d", epoch, w.epoch)
		}
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		there := a.described()
		there.Place = "there"
		if _, err := a.Join(t.Context(), there, long); err != nil {
			t.Errorf("join at another place by the only one that lives: %v", err)
		}
	}))

	t.Run("ban must leave a server that lives alone", pair(func(t *testing.T, a, b server) {
		me := a.join(t, long)
		b.join(t, long)
		if done, err := b.Ban(t.Context(), me.Incarnation); done || err != nil {
			t.Errorf("ban = %v, %v", done, err)
		}
		if err := a.Renew(t.Context()); err != nil {
			t.Errorf("renew: %v", err)
		}
		a.join(t, long)
	}))

	t.Run("who was banned must not join again until it was unbanned", pair(func(t *testing.T, a, b server) {
		me := a.join(t, short)
		other := b.join(t, long)
		eventually(t, "the lease to run out", func() bool {
			done, err := b.Ban(t.Context(), me.Incarnation)
			if err != nil {
				t.Fatal(err)
			}
			return done
		})
		for range 2 { // a server that joins clears away, but not this
			_, err := a.Join(t.Context(), a.described(), long)
			wantErr(t, "join", err, store.ErrBanned)
			wantErr(t, "renew", a.Renew(t.Context()), dormouse.ErrLeaseLost)
			other = b.join(t, long)
		}
		equal(t, "servers", b.servers(t), []store.Server{other})
		if done, err := b.Ban(t.Context(), me.Incarnation); !done || err != nil {
			t.Errorf("ban again = %v, %v", done, err)
		}
		if err := b.Unban(t.Context(), me.Incarnation); err != nil {
			t.Fatal(err)
		}
		if again := a.join(t, long); again.Incarnation == me.Incarnation {
			t.Error("an incarnation was given twice")
		}
		if err := b.Unban(t.Context(), other.Incarnation); err != nil { // a server that was not banned
			t.Fatal(err)
		}
		if err := b.Renew(t.Context()); err != nil {
			t.Errorf("renew by who was not banned: %v", err)
		}
	}))

	t.Run("a server nobody knows any more must be banned too", pair(func(t *testing.T, a, b server) {
		me := a.join(t, long)
		b.join(t, long)
		if err := a.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if done, err := b.Ban(t.Context(), me.Incarnation); !done || err != nil {
			t.Fatalf("ban = %v, %v", done, err)
		}
		_, err := a.Join(t.Context(), a.described(), long)
		wantErr(t, "join", err, store.ErrBanned)
	}))

	t.Run("renew extends the lease", pair(func(t *testing.T, a, b server) {
		const lease = 4 * short
		eventually(t, "a machine that is not too busy to renew in time", func() bool {
			me, began := a.join(t, lease), time.Now()
			last := began
			for ; time.Since(began) < 2*lease; time.Sleep(lease / 20) {
				begins := time.Now()
				err := a.Renew(t.Context())
				if time.Since(last) > lease/2 {
					return false
				}
				if err != nil {
					t.Fatalf("renew in time: %v", err)
				}
				last = begins
			}
			found := b.servers(t)
			if time.Since(last) > lease/2 {
				return false
			}
			equal(t, "servers", found, []store.Server{me})
			return true
		})
	}))

	t.Run("renew of a lease that has run out must be ErrLeaseLost and only join makes it a server again", pair(func(t *testing.T, a, b server) {
		wantErr(t, "renew by who never joined", a.Renew(t.Context()), dormouse.ErrLeaseLost)
		a.die(t, b)
		for range 2 {
			wantErr(t, "renew", a.Renew(t.Context()), dormouse.ErrLeaseLost)
		}
		me := a.join(t, long)
		if err := a.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		equal(t, "servers", b.servers(t), []store.Server{me})
	}))

	t.Run("leave ends the lease and every session it owned must be free at once", pair(func(t *testing.T, a, b server) {
		a.join(t, long)
		b.join(t, long)
		mine, theirs := create(t, a.Store, ada), create(t, b.Store, sessionID(2))
		created := create(t, a.Store, sessionID(3))
		if err := a.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*writer{mine, created} {
			if owner := b.owner(t, w.id); owner != nil {
				t.Errorf("owner = %v, want none", owner)
			}
			if epoch := b.claim(t, w.id).epoch; epoch <= w.epoch {
				t.Errorf("claim = %d after %d", epoch, w.epoch)
			}
		}
		theirs.add(t)
		wantErr(t, "renew after leaving", a.Renew(t.Context()), dormouse.ErrLeaseLost)
		if err := a.Leave(t.Context()); err != nil {
			t.Errorf("leave again: %v", err)
		}
		if got := b.servers(t); len(got) != 1 {
			t.Errorf("servers = %v, want one", got)
		}
	}))

	t.Run("servers must list the servers that live", pair(func(t *testing.T, a, b server) {
		equal(t, "servers before anyone joined", a.servers(t), []store.Server{})
		one := a.join(t, long)
		b.die(t, a)
		for _, s := range []server{a, b} {
			equal(t, "servers", s.servers(t), []store.Server{one})
		}
		two := b.join(t, long)
		for _, s := range []server{a, b} {
			equal(t, "servers", s.servers(t), []store.Server{one, two})
		}
	}))

	t.Run("key must return the same secret to every server of the store", func(t *testing.T) {
		var other []byte
		t.Run("one store", pair(func(t *testing.T, a, b server) {
			keys := make([][]byte, 16)
			var running sync.WaitGroup
			for i := range keys {
				running.Go(func() {
					var err error
					if keys[i], err = []server{a, b}[i%2].Key(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			running.Wait()
			for _, key := range keys {
				if len(key) < 32 || !bytes.Equal(key, keys[0]) {
					t.Fatalf("a key of %d bytes, or two keys", len(key))
				}
			}
			other = keys[0]
		}))
		t.Run("another store", pair(func(t *testing.T, a, _ server) {
			key, err := a.Key(t.Context())
			if err != nil || bytes.Equal(key, other) {
				t.Errorf("two stores share their secret, %v", err)
			}
		}))
	})

	t.Run("now must not go back and all servers share it", pair(func(t *testing.T, a, b server) {
		const apart = 5 * time.Second // far less than a time zone, far more than a round trip
		a.join(t, long)
		b.join(t, long)
		last := a.Now()
		for n := range 200 {
			now, other := a.Now(), b.Now()
			if now.Before(last) {
				t.Fatalf("%v after %v", now, last)
			}
			if d := other.Sub(now); d < -apart || d > apart {
				t.Fatalf("two servers are %v apart", d)
			}
			last = now
			if n%10 == 0 {
				if err := a.Renew(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		eventually(t, "time to pass", func() bool { return a.Now().Sub(last) >= 20*time.Millisecond })
	}))
}
