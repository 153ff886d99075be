package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/postgres"
)

func join(t *testing.T, s *postgres.Store, name string) store.Server {
	t.Helper()
	me, err := s.Join(t.Context(), store.Server{Name: name}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return me
}

func TestWhatWasTakenAndNeverClaimedIsGivenAgain(t *testing.T) {
	dsn := database(t)
	s, other := open(t, dsn), open(t, dsn)
	join(t, s, "a")
	join(t, other, "b")
	create(t, s, sessionID(1), func(b *store.Batch) { b.Rows.Session.Due = start })
	c := raw(t, dsn)
	do(t, c, `UPDATE sessions SET server = NULL`)
	take := func(s *postgres.Store, want int) {
		t.Helper()
		ids, err := s.Take(t.Context(), start, 10)
		if err != nil || len(ids) != want {
			t.Errorf("take = %v, %v, want %d", ids, err, want)
		}
	}
	take(s, 1)
	take(s, 0)
	// The answer never arrived, and a while has passed.
	do(t, c, `UPDATE sessions SET taken = taken - interval '1 minute'`)
	take(other, 0)
	take(s, 1)
	if _, err := s.Claim(t.Context(), sessionID(1), 0); err != nil {
		t.Fatal(err)
	}
	do(t, c, `UPDATE sessions SET taken = taken - interval '1 minute'`)
	take(s, 0)
}

func TestServersThatAreGoneAreForgottenAfterAnHour(t *testing.T) {
	dsn := database(t)
	c := raw(t, dsn)
	for _, age := range []string{"2 hours", "10 minutes"} {
		do(t, c, `INSERT INTO servers (name, addr, place, lease_until) VALUES ($1::text, '', '', now() - $1::text::interval)`, age)
	}
	join(t, open(t, dsn), "a")
	if got := query[string](t, c, `SELECT string_agg(name, ', ' ORDER BY incarnation) FROM servers`); got != "10 minutes, a" {
		t.Errorf("servers = %q", got)
	}
}

func TestNoNotificationsAreSentWhileNobodyElseIsThere(t *testing.T) {
	dsn := database(t)
	s := open(t, dsn)
	join(t, s, "a")
	w := create(t, s, sessionID(1))
	ear := raw(t, dsn)
	do(t, ear, `LISTEN dormouse`)
	heard := func() bool {
		if err := w.add(t.Context(), w.batch(1)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := ear.WaitForNotification(ctx)
		return err == nil
	}
	for range 4 {
		if heard() {
			t.Error("a server that is alone told somebody")
		}
	}
	join(t, open(t, dsn), "b")
	for end := time.Now().Add(20 * time.Second); !heard(); {
		if time.Now().After(end) {
			t.Fatal("the other server was told nothing")
		}
	}
}

func TestManySessionsShareFewNotifications(t *testing.T) {
	dsn := database(t)
	s := open(t, dsn)
	join(t, s, "a")
	join(t, open(t, dsn), "b")
	const count = 1000
	var mu sync.Mutex
	heard := make(map[dormouse.SessionID]bool) // guarded by mu
	calls := 0                                 // guarded by mu
	begun := make(chan struct{}, 10)
	ctx, leave := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = s.Listen(ctx, func(ids []dormouse.SessionID) {
			mu.Lock()
			defer mu.Unlock()
			if len(ids) == 0 {
				begun <- struct{}{}
				return
			}
			calls++
			for _, id := range ids {
				heard[id] = true
			}
		})
	})
	<-begun
	for worker := range 50 {
		running.Go(func() {
			for n := worker; n < count; n += 50 {
				w := newWriter(s, sessionID(n))
				if err := s.Create(t.Context(), w.batch(1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		all := len(heard) == count
		mu.Unlock()
		if all {
			break
		}
	}
	leave()
	running.Wait()
	if len(heard) != count || calls > count/2 {
		t.Errorf("%d sessions were named in %d notifications, want %d in far fewer", len(heard), calls, count)
	}
}

func TestAListenerThatLostItsConnectionSaysThatItMissedSomething(t *testing.T) {
	dsn := database(t)
	s := open(t, dsn)
	join(t, s, "a")
	join(t, open(t, dsn), "b")
	w := create(t, s, sessionID(1))
	told := make(chan []dormouse.SessionID, 1000)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Listen(ctx, func(ids []dormouse.SessionID) { told <- ids }) }()
	wait := func(named bool) {
		t.Helper()
		for end := time.After(20 * time.Second); ; {
			select {
			case ids := <-told:
				if len(ids) > 0 == named {
					return
				}
			case <-end:
				t.Fatalf("nothing was told, want named = %v", named)
			case <-time.After(20 * time.Millisecond):
				if err := w.add(t.Context(), w.batch(1)); named && err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	c := raw(t, dsn)
	for range 3 {
		wait(false)
		wait(true)
		do(t, c, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN dormouse' AND datname = current_database()`)
	}
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("listen = %v, want the end of its context", err)
	}
}

// A claim that looked at the servers before it had the lock would not see one
// that joined in between.
func TestAClaimSeesAnOwnerThatJoinedWhileItWaited(t *testing.T) {
	dsn := database(t)
	s := open(t, dsn)
	join(t, s, "a")
	w := create(t, s, sessionID(1))
	if err := s.Release(t.Context(), sessionID(1), w.epoch); err != nil {
		t.Fatal(err)
	}
	c := raw(t, dsn)
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM sessions FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan error, 1)
	go func() { _, err := s.Claim(t.Context(), sessionID(1), 0); claimed <- err }()
	for waiting := 0; waiting == 0 && len(claimed) == 0; time.Sleep(time.Millisecond) {
		if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	late := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `WITH late AS (INSERT INTO servers (name, addr, place, lease_until)
			VALUES ('late', '', '', now() + interval '1 minute') RETURNING incarnation)
			UPDATE sessions SET server = (SELECT incarnation FROM late)`)
		return err
	})
	if err := errors.Join(late, tx.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	elsewhere, ok := errors.AsType[*store.ElsewhereError](<-claimed)
	if !ok || elsewhere.Owner.Name != "late" {
		t.Errorf("claim = %v, want that the session is elsewhere", elsewhere)
	}
}

// The same for Take, which has no lock to wait for: a view makes it look long
// enough for another to come.
func TestTakeSeesAnOwnerThatJoinedWhileItLooked(t *testing.T) {
	dsn := server.DSN(createDB(t, template))
	s := open(t, dsn)
	create(t, s, sessionID(1), func(b *store.Batch) { b.Rows.Session.Due = start })
	join(t, s, "a")
	c := raw(t, dsn)
	own := func(name, lease string) {
		do(t, c, `WITH owner AS (INSERT INTO all_servers (name, addr, place, lease_until)
			VALUES ($1, '', '', now() + $2::text::interval) RETURNING incarnation)
			UPDATE sessions SET server = (SELECT incarnation FROM owner)`, name, lease)
	}
	do(t, c, `CREATE FUNCTION nap() RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN true; END $$;
		ALTER TABLE servers RENAME TO all_servers; CREATE VIEW servers AS SELECT * FROM all_servers WHERE nap()`)
	own("gone", "-1 minute")
	var ids []dormouse.SessionID
	taken := make(chan error, 1)
	go func() {
		var err error
		ids, err = s.Take(t.Context(), start, 10)
		taken <- err
	}()
	for looking := false; !looking && len(taken) == 0; time.Sleep(time.Millisecond) {
		looking = query[bool](t, c, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
			WHERE state = 'active' AND query LIKE 'SELECT key FROM sessions WHERE due%' AND datname = current_database())`)
	}
	own("late", "1 minute")
	if err := <-taken; err != nil || len(ids) > 0 {
		t.Errorf("take = %v, %v, want nothing", ids, err)
	}
}

// What a server wrote under an epoch it need not write again, but another may
// have written since it had the session last.
func TestWhatAnotherServerWroteInBetweenIsWrittenOver(t *testing.T) {
	dsn := database(t)
	a, b := open(t, dsn), open(t, dsn)
	create(t, a, sessionID(1))
	for n, s := range []*postgres.Store{a, b, a, b, a} {
		w := &writer{store: s, index: dormouse.SessionRow{Session: sessionID(1)}}
		if err := w.claim(t.Context()); err != nil {
			t.Fatal(err)
		}
		labels := []string{"of a"}
		if n%2 == 1 {
			labels = []string{"of b", "both"}
		}
		for range 2 {
			batch := w.batch(1)
			batch.Rows.Session.Tags = labels
			if err := w.add(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			index, err := s.Session(t.Context(), sessionID(1))
			if err != nil {
				t.Fatal(err)
			}
			if len(index.Tags) != len(labels) || index.Tags[0] != labels[0] {
				t.Errorf("round %d: tags %v, want %v", n, index.Tags, labels)
			}
		}
	}
}
