package session_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// askew is a store in which the log of one session and its row do not go equally far.
type askew struct {
	store.Store
	mu   sync.Mutex
	id   dormouse.SessionID
	last uint64 // the last event that is there; 0: as it is
	said uint64 // what the row says is the last; 0: as it is
}

func (a *askew) at() (last, said uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.said
}

func (a *askew) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	events, err := a.Store.Read(ctx, id, after, limit)
	last, _ := a.at()
	for i, e := range events {
		if id == a.id && last > 0 && e.Seq > last {
			return events[:i], err
		}
	}
	return events, err
}

func (a *askew) Session(ctx context.Context, id dormouse.SessionID) (dormouse.SessionRow, error) {
	row, err := a.Store.Session(ctx, id)
	if _, said := a.at(); id == a.id && said > 0 {
		row.Seq = said
	}
	return row, err
}

func (a *askew) Append(ctx context.Context, b store.Batch) error {
	if _, said := a.at(); b.Session == a.id && said > 0 && b.After != said {
		return dormouse.ErrConflict
	}
	return a.Store.Append(ctx, b)
}

func (a *askew) Rebuild(ctx context.Context, id dormouse.SessionID, rows dormouse.Rows) error {
	err := a.Store.Rebuild(ctx, id, rows)
	if err == nil && id == a.id {
		a.mu.Lock()
		a.said = 0
		a.mu.Unlock()
	}
	return err
}

func TestLogThatEndsBeforeItsRowSaysIsDamaged(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{SleepAfter: time.Minute})
		h.mustPrompt("one", script("effect a"))
		settle(10 * time.Second)
		row, err := h.store.Session(t.Context(), h.id)
		if err != nil {
			t.Fatal(err)
		}
		var short *askew
		h.reopen(func(s store.Store) store.Store {
			short = &askew{Store: s, id: h.id, last: row.Seq - 1}
			return short
		})
		settle(time.Second)
		if err := h.prompt("two", "are you there?"); !errors.Is(err, dormouse.ErrDamaged) {
			t.Errorf("a prompt to it = %v, want ErrDamaged", err)
		}
		if _, err := h.live.Peek(t.Context(), h.id); !errors.Is(err, dormouse.ErrDamaged) {
			t.Errorf("peek = %v, want ErrDamaged", err)
		}
		settle(time.Second)
		if d := h.damage(); !strings.Contains(d, "says that the log goes to event") {
			t.Errorf("lists say of it %q", d)
		}
		before := h.store.claimed()
		settle(30 * time.Minute)
		if n := h.store.claimed() - before; n > 1 {
			t.Errorf("it was loaded %d times in half an hour", n)
		}

		// What was not there for a while is there again.
		short.mu.Lock()
		short.last = 0
		short.mu.Unlock()
		settle(2 * time.Minute)
		if d := h.damage(); d != "" {
			t.Errorf("lists still say %q", d)
		}

		short.mu.Lock()
		short.last = row.Seq - 1
		short.mu.Unlock()
		h.crash()
		if err := h.do(law.Terminate{Reason: "no use"}); err != nil {
			t.Fatalf("terminate = %v", err)
		}
		if err := h.do(law.Delete{}); err != nil {
			t.Fatalf("delete = %v", err)
		}
		settle(time.Minute)
		if _, err := h.store.Session(t.Context(), h.id); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("after deletion: %v", err)
		}
	})
}

// Without its first events, and without a cached fold, there would be nothing to say that
// it was ever there.
func TestSessionWithoutALogIsDamagedAndNotUnknown(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.reopen(func(s store.Store) store.Store { return &vanished{s} })
		_, err := h.live.Peek(t.Context(), h.id)
		if !errors.Is(err, dormouse.ErrDamaged) || errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("peek = %v, want ErrDamaged", err)
		}
		if err := h.do(law.Delete{}); err != nil {
			t.Errorf("delete = %v", err)
		}
		settle(time.Minute)
	})
}

// vanished is a store without logs.
type vanished struct{ store.Store }

func (v *vanished) Read(context.Context, dormouse.SessionID, uint64, int) ([]dormouse.Event, error) {
	return nil, nil
}

func (v *vanished) State(context.Context, dormouse.SessionID) (dormouse.StateCache, error) {
	return dormouse.StateCache{}, nil
}

// The log is whole, so that there is nothing to refuse.
func TestRowThatSaysLessThanItsLogHasIsWrittenAnew(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{SleepAfter: time.Minute})
		h.mustPrompt("one", script("effect a"))
		settle(10 * time.Second)
		h.reopen(func(s store.Store) store.Store { return &askew{Store: s, id: h.id, said: 2} })
		if s, err := h.live.Peek(t.Context(), h.id); err != nil || s.Seq != uint64(len(h.log())) {
			t.Errorf("peek = %d, %v", s.Seq, err)
		}
		h.mustPrompt("two", `SCRIPT[{"text":"here I am"}]`)
		settle(time.Minute)
		if texts := h.texts(); len(texts) == 0 || texts[len(texts)-1] != "here I am" {
			t.Errorf("it said %q", texts)
		}
		if n := h.store.claimed(); n > 10 {
			t.Errorf("it was loaded %d times", n)
		}
		h.checked()
	})
}

// A reader without a claim may see a row that an append has moved on since the log was
// read.
func TestAppendWhileSomebodyLooksIsNoDamage(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		settle(time.Second)
		h.reopen(func(s store.Store) store.Store {
			return &between{Store: s, then: func() { h.mustPrompt("meanwhile", `SCRIPT[{"text":"yes"}]`) }}
		})
		before := len(h.log())
		s, err := h.live.Peek(t.Context(), h.id)
		if err != nil || s.Seq <= uint64(before) {
			t.Errorf("peek = %d, %v, want what was appended after %d", s.Seq, err, before)
		}
		settle(time.Minute)
		h.checked()
	})
}

// between does something before a row is looked at, once.
type between struct {
	store.Store
	did  atomic.Bool
	then func()
}

func (b *between) Session(ctx context.Context, id dormouse.SessionID) (dormouse.SessionRow, error) {
	if !b.did.Swap(true) {
		b.then()
	}
	return b.Store.Session(ctx, id)
}
