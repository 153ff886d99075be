package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// writers is how many sessions write at once.
const writers = 64

// each calls f for every writer at once and waits for all.
func each(ws []*writer, f func(n int, w *writer)) {
	var running sync.WaitGroup
	for n, w := range ws {
		running.Go(func() { f(n, w) })
	}
	running.Wait()
}

func createMany(t *testing.T, s store.Store, n int) []*writer {
	t.Helper()
	ws := make([]*writer, n)
	for i := range ws {
		ws[i] = &writer{store: s, id: sessionID(i), index: first(sessionID(i)).Rows.Session}
	}
	each(ws, func(_ int, w *writer) {
		if err := s.Create(t.Context(), first(w.id)); err != nil {
			t.Error(err)
		}
		var err error
		if w.epoch, err = s.Claim(t.Context(), w.id, 0); err != nil {
			t.Error(err)
		}
	})
	return ws
}

func testManyWriters(t *testing.T, fresh opener) {
	t.Run("every session keeps its own order", fresh(func(t *testing.T, s store.Store) {
		const appends = 20
		ws := createMany(t, s, writers)
		each(ws, func(_ int, w *writer) {
			for range appends {
				if err := w.try(t.Context()); err != nil {
					t.Errorf("append to %s: %v", w.id, err)
				}
			}
		})
		for _, w := range ws {
			events := all(t, s, w.id)
			seqs(t, events, 1, appends+1)
			for i, e := range events[1:] {
				equal(t, string(w.id), e, event(w.id, uint64(i)+2, dormouse.AgentMessage))
			}
			index, err := s.Session(t.Context(), w.id)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "index", index, w.index)
		}
	}))

	t.Run("a refused append must fail alone even when it shares a commit with others", fresh(func(t *testing.T, s store.Store) {
		const appends = 20
		ws := createMany(t, s, writers)
		each(ws, func(n int, w *writer) {
			for range appends {
				var refusal error
				var change func(*store.Batch)
				switch n % 4 {
				case 0:
					refusal, change = dormouse.ErrLeaseLost, func(b *store.Batch) { b.Epoch++ }
				case 1:
					refusal, change = dormouse.ErrConflict, func(b *store.Batch) {
						b.After, b.Events[0].Seq, b.Rows.Session.Seq = 500, 501, 501
					}
				case 2:
					refusal, change = dormouse.ErrNotFound, func(b *store.Batch) {
						b.Session, b.Rows.Session.Session = "sesn_nobody", "sesn_nobody"
					}
				}
				if change != nil {
					wantErr(t, "refused append", w.try(t.Context(), change), refusal)
				}
				if err := w.try(t.Context()); err != nil {
					t.Errorf("append to %s: %v", w.id, err)
				}
			}
		})
		for _, w := range ws {
			seqs(t, all(t, s, w.id), 1, appends+1)
		}
	}))

	t.Run("of many appends after one event exactly one is taken", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, sessionID(1))
		rivals := make([]*writer, writers)
		for i := range rivals {
			rivals[i] = &writer{store: s, id: w.id, epoch: w.epoch, index: w.index}
		}
		var mu sync.Mutex
		taken := 0 // guarded by mu
		each(rivals, func(_ int, r *writer) {
			err := r.try(t.Context())
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				taken++
				return
			}
			wantErr(t, "append of a rival", err, dormouse.ErrConflict)
		})
		if taken != 1 {
			t.Errorf("%d appends were taken", taken)
		}
		seqs(t, all(t, s, w.id), 1, 2)
	}))

	t.Run("of many creates of one session exactly one is taken", fresh(func(t *testing.T, s store.Store) {
		var mu sync.Mutex
		taken := 0 // guarded by mu
		each(make([]*writer, writers), func(int, *writer) {
			err := s.Create(t.Context(), first(sessionID(1)))
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				taken++
				return
			}
			wantErr(t, "create by a rival", err, dormouse.ErrConflict)
		})
		if taken != 1 {
			t.Errorf("%d creates were taken", taken)
		}
	}))

	t.Run("who lost the parent makes no more children not even at that moment", fresh(func(t *testing.T, s store.Store) {
		const rounds = 40
		parent := create(t, s, sessionID(1))
		for n := range rounds {
			child := first(sessionID(n + 2))
			child.Under = &dormouse.Fence{Session: parent.id, Epoch: parent.epoch}
			created := make(chan error, 1)
			go func() { created <- s.Create(t.Context(), child) }()
			var err error
			if parent.epoch, err = s.Claim(t.Context(), parent.id, 0); err != nil {
				t.Error(err)
			}
			_, seen := s.Session(t.Context(), child.Session) // by the present owner of the parent
			switch err := <-created; {
			case err == nil && seen != nil:
				t.Errorf("a child came after the claim, when its new owner looked: %v", seen)
			case err != nil:
				wantErr(t, "create", err, dormouse.ErrLeaseLost)
			}
		}
	}))

	t.Run("of many claims every one is different", fresh(func(t *testing.T, s store.Store) {
		w := create(t, s, sessionID(1))
		var mu sync.Mutex
		epochs := map[store.Epoch]bool{w.epoch: true} // guarded by mu
		each(make([]*writer, writers), func(int, *writer) {
			epoch, err := s.Claim(t.Context(), w.id, 0)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			epochs[epoch] = true
		})
		if len(epochs) != writers+1 {
			t.Errorf("%d different epochs of %d claims", len(epochs), writers+1)
		}
	}))

	t.Run("read must return only committed events and a whole batch at a time", fresh(testReadsWhileWriting))
	t.Run("a caller who stops waiting must never be told that nothing changed when something may have", fresh(testLeaving))
}

// testReadsWhileWriting appends batches of three, and looks for a batch that is
// there in part, or rows that are ahead of or behind their events.
func testReadsWhileWriting(t *testing.T, s store.Store) {
	const appends = 100
	w := create(t, s, sessionID(1))
	done := make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	for range 4 {
		reading.Go(func() {
			for {
				index, err := s.Session(t.Context(), w.id)
				if err != nil {
					t.Error(err)
					return
				}
				events, err := s.Read(t.Context(), w.id, 0, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				if len(events)%3 != 1 {
					t.Errorf("%d events: a batch of three was read in part", len(events))
				}
				if uint64(len(events)) < index.Seq {
					t.Errorf("%d events, fewer than the %d the index was already at", len(events), index.Seq)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range appends {
		b := w.batch(3)
		if err := s.Append(t.Context(), b); err != nil {
			t.Error(err)
		}
		w.index = b.Rows.Session
		events, err := s.Read(t.Context(), w.id, b.After, 10)
		if err != nil || len(events) != 3 {
			t.Errorf("%d events after an append of three, %v", len(events), err)
		}
	}
	close(done)
}

// testLeaving cancels appends while they wait and compares what was said with
// what is stored.
func testLeaving(t *testing.T, s store.Store) {
	const rounds = 15
	ws := createMany(t, s, writers)
	each(ws, func(n int, w *writer) {
		dice := rand.New(rand.NewPCG(1, uint64(n)))
		for range rounds {
			ctx, leave := context.WithTimeout(t.Context(), time.Duration(dice.IntN(3000))*time.Microsecond)
			err := w.try(ctx)
			leave()
			events, readErr := s.Read(t.Context(), w.id, w.index.Seq, 10)
			if readErr != nil {
				t.Error(readErr)
				return
			}
			switch {
			case err == nil && len(events) > 0:
				t.Errorf("%d events beyond the one that was stored", len(events))
			case errors.Is(err, dormouse.ErrUnknownOutcome):
				reclaim(t, w)
			case err != nil && len(events) > 0:
				t.Errorf("append said %v, but the event is there", err)
			case err != nil:
				wantErr(t, "append", err, context.DeadlineExceeded)
			}
		}
	})
	for _, w := range ws {
		w.add(t)
		seqs(t, all(t, s, w.id), 1, w.index.Seq)
	}
}

// reclaim does what an actor does after an unknown outcome: it claims again,
// which no write of before may follow, and believes the log.
func reclaim(t *testing.T, w *writer) {
	var err error
	if w.epoch, err = w.store.Claim(t.Context(), w.id, 0); err != nil {
		t.Error(err)
		return
	}
	if w.index, err = w.store.Session(t.Context(), w.id); err != nil {
		t.Error(err)
	}
}
