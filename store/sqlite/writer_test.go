package sqlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

var start = time.Date(2026, 3, 4, 5, 6, 7, 123_456_000, time.UTC)

func sessionID(n int) dormouse.SessionID {
	return dormouse.SessionID(fmt.Sprintf("%s%06d", dormouse.SessionPrefix, n))
}

// writer appends to one session the way its actor does.
type writer struct {
	store store.Store
	epoch store.Epoch
	index dormouse.SessionRow
}

func create(t testing.TB, s store.Store, id dormouse.SessionID, change ...func(*store.Batch)) *writer {
	t.Helper()
	w := &writer{store: s, index: dormouse.SessionRow{
		Session: id, Tenant: "acme", Owner: dormouse.User("ada"), Title: "a title",
		Phase: dormouse.PhaseReady, Status: dormouse.StatusIdle, Created: start,
	}}
	b := w.batch(1)
	for _, f := range change {
		f(&b)
	}
	if err := s.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.index = b.Rows.Session
	var err error
	if w.epoch, err = s.Claim(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	return w
}

// batch is the next batch of n events.
func (w *writer) batch(n int) store.Batch {
	b := store.Batch{Session: w.index.Session, Epoch: w.epoch, After: w.index.Seq}
	index := w.index
	for range n {
		index.Seq++
		index.Updated = start.Add(time.Duration(index.Seq) * time.Microsecond)
		b.Events = append(b.Events, dormouse.Event{
			Seq: index.Seq, ID: dormouse.EventID(fmt.Sprintf("%s%026d", dormouse.EventPrefix, index.Seq)), Type: dormouse.AgentMessage,
			Thread: dormouse.PrimaryThread(index.Session), Actor: dormouse.ActorAgent, Time: index.Updated,
			Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, index.Seq)),
		})
	}
	b.Rows = &dormouse.Rows{Session: index}
	return b
}

// add appends a batch, and goes on from it only if it was stored.
func (w *writer) add(ctx context.Context, b store.Batch) error {
	if err := w.store.Append(ctx, b); err != nil {
		return err
	}
	w.index = b.Rows.Session
	return nil
}
