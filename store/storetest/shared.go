package storetest

import (
	"cmp"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// RunShared holds a store that several servers use at once to its promises. It
// calls open for an empty store as two servers see it, neither of which has
// joined, as often as it needs one, and closes both itself.
//
// What makes a lease run out is time, so this takes some seconds.
func RunShared(t *testing.T, open func(t *testing.T) (a, b store.Store)) {
	pair := func(f func(t *testing.T, a, b server)) func(t *testing.T) {
		return func(t *testing.T) {
			first, second := open(t)
			a, b := serving(t, "a", first), serving(t, "b", second)
			defer func() {
				if err := errors.Join(a.Close(), b.Close()); err != nil {
					t.Errorf("close: %v", err)
				}
			}()
			f(t, a, b)
		}
	}
	t.Run("fleet", func(t *testing.T) { testFleet(t, pair) })
	t.Run("claiming", func(t *testing.T) { testClaiming(t, pair) })
	t.Run("taking", func(t *testing.T) { testTaking(t, pair) })
	t.Run("versions", func(t *testing.T) { testVersionsShared(t, pair) })
	t.Run("releasing", func(t *testing.T) { testReleasing(t, pair) })
	t.Run("where", func(t *testing.T) { testWhere(t, pair) })
	t.Run("listening", func(t *testing.T) { testListening(t, pair) })
	t.Run("documents", func(t *testing.T) { testDocumentsShared(t, pair) })
	t.Run("a closed server refuses everything and the other goes on", pair(testOneCloses))
}

// pairer gives each subtest two servers of a store of its own.
type pairer = func(func(t *testing.T, a, b server)) func(t *testing.T)

// server is a store as one server sees it.
type server struct {
	store.Store
	store.Shared
	name string
}

func serving(t *testing.T, name string, s store.Store) server {
	t.Helper()
	shared, ok := s.(store.Shared)
	if !ok {
		t.Fatalf("%T is for one server alone", s)
	}
	return server{Store: s, Shared: shared, name: name}
}

// Leases: one that outlives a test on the slowest machine, and one to wait for
// the end of.
const (
	long  = 10 * time.Minute
	short = 300 * time.Millisecond
)

// here is where the servers are.
const here = "here"

// join joins as a server that others can know again.
func (s server) join(t *testing.T, lease time.Duration) store.Server {
	t.Helper()
	me, err := s.Join(t.Context(), s.described(), lease)
	if err != nil {
		t.Fatal(err)
	}
	return me
}

func (s server) described() store.Server {
	return store.Server{Name: "server " + s.name, Addr: "http://" + s.name + ".example:1", Place: here}
}

// servers lists the servers that live, as s sees it, by incarnation.
func (s server) servers(t *testing.T) []store.Server {
	t.Helper()
	found, err := s.Servers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(found, func(x, y store.Server) int { return cmp.Compare(x.Incarnation, y.Incarnation) })
	return found
}

// claim claims a session that must be there for the taking.
func (s server) claim(t *testing.T, id dormouse.SessionID) *writer {
	t.Helper()
	epoch, err := s.Claim(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	index, err := s.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return &writer{store: s.Store, id: id, epoch: epoch, index: index}
}

// die claims sessions, oldest first, and lets the lease run out, as watcher sees it.
func (s server) die(t *testing.T, watcher server, ids ...dormouse.SessionID) (ws []*writer) {
	t.Helper()
	var me store.Server
	eventually(t, "a machine that is not too busy to claim in time", func() bool {
		me, ws = s.join(t, short), nil
		for _, id := range ids {
			epoch, err := s.Claim(t.Context(), id, 0)
			if errors.Is(err, dormouse.ErrLeaseLost) {
				return false
			}
			if err != nil {
				t.Fatal(err)
			}
			ws = append(ws, &writer{store: s.Store, id: id, epoch: epoch, index: first(id).Rows.Session})
		}
		return true
	})
	eventually(t, "the end of a lease", func() bool { return !slices.Contains(watcher.servers(t), me) })
	return ws
}

// add makes a session, which change may alter first, that no server has claimed.
func (s server) add(t *testing.T, id dormouse.SessionID, change ...func(*store.Batch)) {
	t.Helper()
	b := first(id)
	for _, f := range change {
		f(&b)
	}
	if err := s.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// owner is the owner of a session, as s sees it.
func (s server) owner(t *testing.T, id dormouse.SessionID) *store.Server {
	t.Helper()
	places, err := s.Where(t.Context(), id)
	if err != nil || len(places) != 1 || places[0].Session != id {
		t.Fatalf("where %s = %v, %v, want one place", id, places, err)
	}
	return places[0].Owner
}

// elsewhere fails unless err says that a session is on the given server.
func elsewhere(t *testing.T, what string, err error, id dormouse.SessionID, owner store.Server) {
	t.Helper()
	found, ok := errors.AsType[*store.ElsewhereError](err)
	if !ok {
		t.Errorf("%s = %v, want that %s is elsewhere", what, err, id)
		return
	}
	equal(t, what, *found, store.ElsewhereError{Session: id, Owner: owner})
}

// patience is how long a test waits for a condition.
const patience = time.Minute

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func testOneCloses(t *testing.T, a, b server) {
	a.join(t, long)
	me := b.join(t, long)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, err := a.Join(ctx, a.described(), long)
	wantErr(t, "join", err, dormouse.ErrClosing)
	wantErr(t, "renew", a.Renew(ctx), dormouse.ErrClosing)
	wantErr(t, "leave", a.Leave(ctx), dormouse.ErrClosing)
	_, err = a.Servers(ctx)
	wantErr(t, "servers", err, dormouse.ErrClosing)
	_, err = a.Key(ctx)
	wantErr(t, "key", err, dormouse.ErrClosing)
	_, err = a.Take(ctx, at(0), 1)
	wantErr(t, "take", err, dormouse.ErrClosing)
	wantErr(t, "release", a.Release(ctx, sessionID(1), 1), dormouse.ErrClosing)
	_, err = a.Where(ctx, sessionID(1))
	wantErr(t, "where", err, dormouse.ErrClosing)
	wantErr(t, "listen", a.Listen(ctx, func([]dormouse.SessionID) {}), dormouse.ErrClosing)
	if !slices.Contains(b.servers(t), me) {
		t.Error("the other server is gone too")
	}
	create(t, b.Store, sessionID(1)).add(t)
}
