package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/pgserver"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/postgres"
)

// raw is a connection behind the store's back.
func raw(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func do(t testing.TB, c *pgx.Conn, text string, args ...any) {
	t.Helper()
	if _, err := c.Exec(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func query[T any](t testing.TB, c *pgx.Conn, text string, args ...any) (v T) {
	t.Helper()
	if err := c.QueryRow(t.Context(), text, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// checkLog fails unless the log has at least seq events, no gap, and an index row
// that agrees.
func checkLog(t *testing.T, s store.Store, id dormouse.SessionID, seq uint64) {
	t.Helper()
	index, err := s.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Read(t.Context(), id, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if index.Seq < seq || index.Seq != uint64(len(events)) {
		t.Errorf("%s: %d events, index at %d, told %d", id, len(events), index.Seq, seq)
	}
	for i, e := range events {
		if e.Seq != uint64(i)+1 {
			t.Errorf("%s: event %d has seq %d", id, i, e.Seq)
		}
	}
}

func TestACommitWhoseAnswerIsLostHasAnUnknownOutcomeThatAClaimSettles(t *testing.T) {
	for name, test := range map[string]struct {
		fate fate
		grew uint64
	}{
		"it happened":        {unanswered, 1},
		"it did not happen":  {dropped, 0},
		"nobody ever learns": {frozen, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t)
			w := create(t, open(t, p.through(database(t))), sessionID(1))
			p.once("commit", test.fate)
			ctx, leave := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer leave()
			before := w.index.Seq
			if err := w.add(ctx, w.batch(1)); !errors.Is(err, dormouse.ErrUnknownOutcome) {
				t.Fatalf("append = %v, want ErrUnknownOutcome", err)
			}
			if err := w.claim(t.Context()); err != nil {
				t.Fatal(err)
			}
			if grew := w.index.Seq - before; grew != test.grew {
				t.Errorf("the log grew by %d, want %d", grew, test.grew)
			}
			p.cut() // what is frozen, too
			if err := w.add(t.Context(), w.batch(1)); err != nil {
				t.Errorf("append after the claim: %v", err)
			}
			checkLog(t, w.store, sessionID(1), before+test.grew+1)
		})
	}
}

func TestAConnectionLostBeforeTheCommitChangesNothingAndIsTriedAgain(t *testing.T) {
	p := newProxy(t)
	w := create(t, open(t, p.through(database(t))), sessionID(1))
	for _, f := range []fate{dropped, unanswered} {
		p.once("update_sessions", f)
		if err := w.add(t.Context(), w.batch(1)); err != nil {
			t.Errorf("append: %v", err)
		}
	}
	p.cut() // while nothing is on its way
	if err := w.add(t.Context(), w.batch(1)); err != nil {
		t.Errorf("append: %v", err)
	}
	checkLog(t, w.store, sessionID(1), 4)
}

// A server that freezes in the middle of a transaction holds the locks of its
// sessions, but not for long.
func TestAFrozenServerHoldsNobodyOff(t *testing.T) {
	dsn := database(t)
	p := newProxy(t)
	frozenServer, other := open(t, p.through(dsn)), open(t, dsn)
	w := create(t, frozenServer, sessionID(1))
	sprung := p.once("commit", frozen)
	ctx, leave := context.WithCancel(t.Context())
	appended := make(chan error)
	go func() { appended <- frozenServer.Append(ctx, w.batch(1)) }()
	<-sprung
	theirs := &writer{store: other, index: w.index}
	began := time.Now()
	if err := theirs.claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("claimed after %v", time.Since(began))
	if theirs.index.Seq != w.index.Seq {
		t.Errorf("the log is at %d, want %d: nothing was committed", theirs.index.Seq, w.index.Seq)
	}
	if err := theirs.add(t.Context(), theirs.batch(1)); err != nil {
		t.Error(err)
	}
	leave()
	if err := <-appended; !errors.Is(err, dormouse.ErrUnknownOutcome) {
		t.Errorf("append of the frozen server = %v, want ErrUnknownOutcome", err)
	}
	checkLog(t, other, sessionID(1), 2)
	p.cut()
}

func TestADatabaseThatDoesNotAnswerIsAnErrorWithinTheCallersTime(t *testing.T) {
	p := newProxy(t)
	s := open(t, p.through(database(t)))
	w := create(t, s, sessionID(1))
	p.always(func([]byte) fate { return frozen })
	const limit = 200 * time.Millisecond
	for name, call := range map[string]func(context.Context) error{
		"append":  func(ctx context.Context) error { return s.Append(ctx, w.batch(1)) },
		"read":    func(ctx context.Context) error { _, err := s.Read(ctx, sessionID(1), 0, 1); return err },
		"claim":   func(ctx context.Context) error { _, err := s.Claim(ctx, sessionID(1), 0); return err },
		"check":   s.Check,
		"join":    func(ctx context.Context) error { _, err := s.Join(ctx, store.Server{}, time.Second); return err },
		"servers": func(ctx context.Context) error { _, err := s.Servers(ctx); return err },
	} {
		ctx, leave := context.WithTimeout(t.Context(), limit)
		began := time.Now()
		err := call(ctx)
		leave()
		if err == nil {
			t.Errorf("%s got an answer", name)
		}
		if took := time.Since(began); took > limit+5*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	p.always(nil)
	p.cut()
	if err := w.claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.add(t.Context(), w.batch(1)); err != nil {
		t.Errorf("append once the database answers again: %v", err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSerializationFailuresAreTriedAgain(t *testing.T) {
	dsn := server.DSN(createDB(t, template))
	s := open(t, dsn)
	c := raw(t, dsn)
	do(t, c, `CREATE FUNCTION storm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF random() < 0.2 THEN RAISE EXCEPTION USING ERRCODE = (ARRAY['40001', '40P01'])[1 + (random() * 1.99)::int / 2]; END IF;
		RETURN NEW; END $$`)
	var writers [8]*writer
	for i := range writers {
		writers[i] = create(t, s, sessionID(i))
	}
	do(t, c, `CREATE TRIGGER storm BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION storm()`)
	var running sync.WaitGroup
	for _, w := range writers {
		running.Go(func() {
			for range 10 {
				if err := w.add(t.Context(), w.batch(2)); err != nil {
					t.Errorf("append to %s: %v", w.index.Session, err)
				}
			}
		})
	}
	running.Wait()
	for _, w := range writers {
		checkLog(t, s, w.index.Session, 21)
	}
}

// An append that breaks a rule of the schema is a bug of its caller; the others
// in its commit must not fail with it.
func TestAnAppendTheSchemaRefusesFailsAlone(t *testing.T) {
	s := open(t, database(t))
	var writers [32]*writer
	for i := range writers {
		writers[i] = create(t, s, sessionID(i))
	}
	spoil := []func(*store.Batch){
		func(b *store.Batch) { b.Chunks = []store.Chunk{{Op: "op_1", N: -1}} },
		func(b *store.Batch) { b.Rows.Session.Title = "a\x00b" },
		func(b *store.Batch) { b.Rows.Session.Title = "a\xffb" },
		func(b *store.Batch) { b.Rows.Session.Tags = []string{"\x00"} },
	}
	var running sync.WaitGroup
	for i, w := range writers {
		running.Go(func() {
			for n := range 8 {
				if i%8 == 0 {
					b := w.batch(1)
					spoil[n%len(spoil)](&b)
					if err := w.add(t.Context(), b); !errors.Is(err, dormouse.ErrInvalid) {
						t.Errorf("append of what cannot be stored = %v, want ErrInvalid", err)
					}
				}
				if err := w.add(t.Context(), w.batch(1)); err != nil {
					t.Errorf("append to %s: %v", w.index.Session, err)
				}
			}
		})
	}
	running.Wait()
	for _, w := range writers {
		checkLog(t, s, w.index.Session, 9)
	}
}

// underLoad appends from several sessions while disturb runs, the way actors do,
// and then compares what was acknowledged with what is there.
func underLoad(t *testing.T, disturb func()) {
	s := open(t, database(t))
	var writers [16]*writer
	for i := range writers {
		writers[i] = create(t, s, sessionID(i))
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	for _, w := range writers {
		running.Go(func() {
			for {
				select {
				case <-stop:
					if w.index.Seq >= 2 { // it has its first turn
						return
					}
				default:
				}
				b := w.batch(2)
				err := w.add(t.Context(), b)
				switch {
				case err == nil:
				case errors.Is(err, dormouse.ErrUnknownOutcome):
					if err := w.claim(t.Context()); err != nil {
						t.Errorf("claim after an unknown outcome: %v", err)
						return
					}
					if at := w.index.Seq; at != b.After && at != b.Last() {
						t.Errorf("%s is at %d, after an append from %d to %d", w.index.Session, at, b.After, b.Last())
					}
				default:
					t.Errorf("append to %s: %v", w.index.Session, err)
					return
				}
			}
		})
	}
	disturb()
	close(stop)
	running.Wait()
	for _, w := range writers {
		if w.index.Seq < 2 {
			t.Errorf("%s has not grown", w.index.Session)
		}
		checkLog(t, s, w.index.Session, w.index.Seq)
	}
}

func TestWhatAppendReturnedNilForSurvivesACrashOfTheDatabase(t *testing.T) {
	underLoad(t, func() {
		for _, mode := range []pgserver.Mode{pgserver.Immediate, pgserver.Fast, pgserver.Immediate, pgserver.Immediate} {
			time.Sleep(200 * time.Millisecond)
			if err := server.Restart(t.Context(), mode); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(200 * time.Millisecond)
	})
}

func TestEndedConnectionsAreMadeAgain(t *testing.T) {
	c := raw(t, server.DSN("postgres"))
	underLoad(t, func() {
		for range 40 {
			time.Sleep(10 * time.Millisecond)
			do(t, c, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dormouse'`)
		}
	})
}

func TestCloseWaitsForWhatWasHandedIn(t *testing.T) {
	dsn := database(t)
	s := open(t, dsn)
	var writers [16]*writer
	for i := range writers {
		writers[i] = create(t, s, sessionID(i))
	}
	var running sync.WaitGroup
	for _, w := range writers {
		running.Go(func() {
			for {
				if err := w.add(context.Background(), w.batch(1)); err != nil {
					if !errors.Is(err, dormouse.ErrClosing) {
						t.Errorf("append = %v, want ErrClosing", err)
					}
					return
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	shut(t, s)
	running.Wait()
	s = open(t, dsn)
	for _, w := range writers {
		index, err := s.Session(t.Context(), w.index.Session)
		if err != nil || index.Seq != w.index.Seq {
			t.Errorf("%s ends at %d, %v; the last append said %d", w.index.Session, index.Seq, err, w.index.Seq)
		}
	}
}

func TestRenewingWaitsForNoOtherWork(t *testing.T) {
	dsn := database(t)
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{Readers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, s)
	if _, err := s.Join(t.Context(), store.Server{Name: "a"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	w := create(t, s, sessionID(1))
	tx, err := raw(t, dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE sessions, events`); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() { _, _ = s.Read(ctx, sessionID(1), 0, 1) })
		running.Go(func() { _, _ = s.Claim(ctx, sessionID(1), 0) })
		running.Go(func() { _ = s.Append(ctx, w.batch(1)) })
	}
	time.Sleep(50 * time.Millisecond)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if err := s.Renew(ctx); err != nil {
			t.Errorf("renew: %v", err)
		}
		cancel()
	}
	leave()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	running.Wait()
}
