package history

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
)

// A newer program may have cached the fold of what this one does not know, under the
// same stateVersion.
func TestACachedFoldOfANewerProgramIsNotUsed(t *testing.T) {
	const id = "sesn_one"
	s := new(memory.Store)
	e := dormouse.Event{Seq: 1, ID: "sevt_1", Type: dormouse.SessionCreated, Payload: []byte(`{"session":"sesn_one"}`)}
	rows := &dormouse.Rows{Session: dormouse.SessionRow{Session: id, Seq: 1}}
	if err := s.Create(t.Context(), store.Batch{Session: id, Events: []dormouse.Event{e}, Rows: rows}); err != nil {
		t.Fatal(err)
	}
	epoch, err := s.Claim(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := Reader{Store: s, Logger: slog.New(slog.DiscardHandler)}
	for needs, want := range map[int]error{dormouse.LogVersion: nil, dormouse.LogVersion + 1: dormouse.ErrNewerLog} {
		cached := law.CacheState(law.State{Session: id, Seq: 1, Needs: needs})
		if err := s.Append(t.Context(), store.Batch{Session: id, Epoch: epoch, After: 1, State: cached}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Fold(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("fold from a cached state that needs version %d = %v, want %v", needs, err, want)
		}
	}
}

// badlyRead is a store that has an event not be as it was written.
type badlyRead struct {
	store.Store
	bad uint64
}

func (b badlyRead) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	events, err := b.Store.Read(ctx, id, after, limit)
	if b.bad > after && b.bad <= after+uint64(len(events)) {
		return events[:b.bad-after-1], &store.DamageError{Session: id, Seq: b.bad, Err: errNoJSON}
	}
	return events, err
}

// Else an older program could fold what is written after the end of a damaged session.
func TestWhatRemainsOfALogNeedsAsMuchAsTheLog(t *testing.T) {
	const id = "sesn_one"
	s := new(memory.Store)
	events := []dormouse.Event{
		{Seq: 1, ID: "sevt_1", Type: dormouse.SessionCreated, Payload: []byte(`{"session":"sesn_one"}`)},
		{Seq: 2, ID: "sevt_2", Type: dormouse.SessionTagged, Payload: []byte(`{}`)},
		{Seq: 3, ID: "sevt_3", Type: "session.dreamt", Payload: []byte(`{}`)},
	}
	row := dormouse.SessionRow{Session: id, Seq: 2, Needs: dormouse.LogVersion + 1}
	if err := s.Create(t.Context(), store.Batch{Session: id, Events: events[:2], Rows: &dormouse.Rows{Session: row}}); err != nil {
		t.Fatal(err)
	}
	r := Reader{Store: badlyRead{s, 2}, Logger: slog.New(slog.DiscardHandler)}
	state, err := r.Salvage(t.Context(), row)
	if got := law.Index(state).Needs; err != nil || got != row.Needs {
		t.Errorf("what remains needs version %d, %v, want %d", got, err, row.Needs)
	}
	epoch, err := s.Claim(t.Context(), id, 0)
	if err == nil {
		t.Errorf("it was claimed under epoch %d", epoch)
	}
}

// A log is not folded just because its row does not say what the log needs.
func TestWhatRemainsOfANewerLogIsNotFolded(t *testing.T) {
	const id = "sesn_one"
	s := new(memory.Store)
	events := []dormouse.Event{
		{Seq: 1, ID: "sevt_1", Type: dormouse.SessionCreated, Payload: []byte(`{"session":"sesn_one"}`)},
		{Seq: 2, ID: "sevt_2", Type: dormouse.SessionTagged, Payload: []byte(`{}`)},
		{Seq: 3, ID: "sevt_3", Type: "session.dreamt", Payload: []byte(`{}`)},
	}
	row := dormouse.SessionRow{Session: id, Seq: 3, Needs: 1}
	if err := s.Create(t.Context(), store.Batch{Session: id, Events: events, Rows: &dormouse.Rows{Session: row}}); err != nil {
		t.Fatal(err)
	}
	r := Reader{Store: badlyRead{s, 2}, Logger: slog.New(slog.DiscardHandler)}
	if _, err := r.Salvage(t.Context(), row); !errors.Is(err, dormouse.ErrNewerLog) {
		t.Errorf("salvage = %v, want ErrNewerLog", err)
	}
}
