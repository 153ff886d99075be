package session

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
)

// A newer program may have cached the fold of what this one does not know, under the
// same stateVersion.
func TestACachedFoldOfANewerProgramIsNotUsed(t *testing.T) {
	const id = "sesn_one"
	s := new(memory.Store)
	e := dormouse.Event{Seq: 1, ID: "sevt_1", Type: dormouse.SessionCreated, Payload: []byte(`{"session":"sesn_one"}`)}
	rows := &store.Rows{Index: store.Index{Session: id, Seq: 1}}
	if err := s.Create(t.Context(), store.Batch{Session: id, Events: []dormouse.Event{e}, Rows: rows}); err != nil {
		t.Fatal(err)
	}
	epoch, err := s.Claim(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	deps := &Config{Store: s, Logger: slog.New(slog.DiscardHandler)}
	for needs, want := range map[int]error{dormouse.LogVersion: nil, dormouse.LogVersion + 1: dormouse.ErrNewerLog} {
		cached := cacheState(State{Session: id, Seq: 1, Needs: needs})
		if err := s.Append(t.Context(), store.Batch{Session: id, Epoch: epoch, After: 1, State: cached}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := fold(t.Context(), deps, id); !errors.Is(err, want) {
			t.Errorf("fold from a cached state that needs version %d = %v, want %v", needs, err, want)
		}
	}
}
