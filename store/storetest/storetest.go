// Package storetest tests the promises of package store. A database that passes
// Run may be used for sessions, and one that passes RunShared for sessions of
// several servers.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Run holds a store to its promises. It calls open for an empty store as often
// as it needs one and closes each itself.
//
// What only a process that dies can show, a kill and a power cut, is left to
// the tests of each store.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	fresh := func(f func(t *testing.T, s store.Store)) func(t *testing.T) {
		return func(t *testing.T) {
			s := open(t)
			defer func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}()
			f(t, s)
		}
	}
	t.Run("log", func(t *testing.T) { testLog(t, fresh) })
	t.Run("marking", func(t *testing.T) { testMarking(t, fresh) })
	t.Run("many writers", func(t *testing.T) { testManyWriters(t, fresh) })
	t.Run("rows", func(t *testing.T) { testRows(t, fresh) })
	t.Run("listing", func(t *testing.T) { testListing(t, fresh) })
	t.Run("selecting", func(t *testing.T) { testSelecting(t, fresh) })
	t.Run("loading", func(t *testing.T) { testLoading(t, fresh) })
	t.Run("due", func(t *testing.T) { testDue(t, fresh) })
	t.Run("versions", func(t *testing.T) { testVersions(t, fresh) })
	t.Run("rebuilding", func(t *testing.T) { testRebuilding(t, fresh) })
	t.Run("carrying", func(t *testing.T) { testCarrying(t, fresh) })
	t.Run("removing", func(t *testing.T) { testRemoving(t, fresh) })
	t.Run("naming", func(t *testing.T) { testNaming(t, fresh) })
	t.Run("documents", func(t *testing.T) { testDocuments(t, fresh) })
	t.Run("documents listed", func(t *testing.T) { testDocumentsListed(t, fresh) })
	t.Run("documents carried", func(t *testing.T) { testDocumentsCarried(t, fresh) })
	t.Run("check reports whether the database can be read and written now", fresh(func(t *testing.T, s store.Store) {
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("check of an open store: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); !errors.Is(err, dormouse.ErrClosing) {
			t.Errorf("check of a closed store = %v, want ErrClosing", err)
		}
	}))
	t.Run("a closed store refuses everything, and closing it again is no error", func(t *testing.T) { testClosed(t, open) })
}

// opener gives each subtest a store of its own.
type opener = func(func(t *testing.T, s store.Store)) func(t *testing.T)

// start is the time of the first event, with every digit a store has to keep.
var start = time.Date(2026, 3, 4, 5, 6, 7, 123_456_000, time.UTC)

// at is n microseconds after the start.
func at(n int) time.Time { return start.Add(time.Duration(n) * time.Microsecond) }

func sessionID(n int) dormouse.SessionID {
	return dormouse.SessionID(fmt.Sprintf("%s%04d", dormouse.SessionPrefix, n))
}

func promptID(n int) dormouse.EventID {
	return dormouse.EventID(fmt.Sprintf("%sprompt%04d", dormouse.EventPrefix, n))
}

func opID(n int) dormouse.OpID { return dormouse.OpID(fmt.Sprintf("%s%04d", dormouse.OpPrefix, n)) }

// event makes the event with the given seq.
func event(id dormouse.SessionID, seq uint64, kind dormouse.EventType) dormouse.Event {
	return dormouse.Event{
		Seq:     seq,
		ID:      dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(id), fmt.Sprint(seq))),
		Type:    kind,
		Thread:  dormouse.PrimaryThread(id),
		Actor:   dormouse.User("ada"),
		Time:    at(int(seq)),
		Payload: json.RawMessage(fmt.Sprintf(`{"n": %d, "text":"Grüße 🐭"}`, seq)),
	}
}

// first is the batch that creates a session.
func first(id dormouse.SessionID) store.Batch {
	return store.Batch{
		Session: id,
		Events:  []dormouse.Event{event(id, 1, dormouse.SessionCreated)},
		Rows: &dormouse.Rows{Session: dormouse.SessionRow{
			Session: id,
			Tenant:  "acme",
			Owner:   dormouse.User("ada"),
			Title:   "a title",
			Phase:   dormouse.PhaseReady,
			Status:  dormouse.StatusIdle,
			Created: start,
			Updated: start,
			Seq:     1,
		}},
	}
}

// writer appends to one session the way its actor does.
type writer struct {
	store store.Store
	id    dormouse.SessionID
	epoch store.Epoch
	index dormouse.SessionRow
}

// create makes a session, which change may alter first, and claims it.
func create(t *testing.T, s store.Store, id dormouse.SessionID, change ...func(*store.Batch)) *writer {
	t.Helper()
	b := first(id)
	for _, f := range change {
		f(&b)
	}
	if err := s.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	epoch, err := s.Claim(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &writer{store: s, id: id, epoch: epoch, index: b.Rows.Session}
}

// batch is the next batch of n events.
func (w *writer) batch(n int) store.Batch {
	b := store.Batch{Session: w.id, Epoch: w.epoch, After: w.index.Seq}
	index := w.index
	for range n {
		index.Seq++
		b.Events = append(b.Events, event(w.id, index.Seq, dormouse.AgentMessage))
	}
	if n > 0 {
		index.Updated = at(int(index.Seq))
		b.Rows = &dormouse.Rows{Session: index}
	}
	return b
}

// try appends one event with whatever change adds, and believes it only if it
// was stored.
func (w *writer) try(ctx context.Context, change ...func(*store.Batch)) error {
	b := w.batch(1)
	for _, f := range change {
		f(&b)
	}
	if err := w.store.Append(ctx, b); err != nil {
		return err
	}
	if b.Rows != nil {
		w.index = b.Rows.Session
	}
	return nil
}

func (w *writer) add(t *testing.T, change ...func(*store.Batch)) {
	t.Helper()
	if err := w.try(t.Context(), change...); err != nil {
		t.Fatal(err)
	}
}

// equal fails unless got is want. Nothing and an empty list are the same.
func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return // a diff of what is large takes seconds to find none
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wantErr fails unless err is target.
func wantErr(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s = %v, want %v", what, err, target)
	}
}

// all reads a session's whole log.
func all(t *testing.T, s store.Store, id dormouse.SessionID) []dormouse.Event {
	t.Helper()
	events, err := s.Read(t.Context(), id, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// seqs fails unless events are numbered first to last without a gap.
func seqs(t *testing.T, events []dormouse.Event, first, last uint64) {
	t.Helper()
	if want := int(last + 1 - first); len(events) != want {
		t.Errorf("%d events, want %d to %d", len(events), first, last)
		return
	}
	for i, e := range events {
		if want := first + uint64(i); e.Seq != want {
			t.Errorf("event %d has seq %d, want %d", i, e.Seq, want)
		}
	}
}
