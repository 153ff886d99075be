package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// follow reads until ctx ends and fails on any gap or repeat.
func follow(ctx context.Context, t *testing.T, h *house, after uint64, each func(dormouse.Event)) error {
	f, err := h.live.Follow(ctx, h.id, after)
	if err != nil {
		return err
	}
	defer f.Close()
	last := after
	for {
		items, err := f.Next(ctx)
		if err != nil {
			return err
		}
		for _, i := range items {
			if i.Delta != nil {
				continue
			}
			if i.Event.Seq != last+1 {
				t.Errorf("follower saw %d after %d", i.Event.Seq, last)
			}
			last = i.Event.Seq
			each(i.Event)
		}
	}
}

func TestFollowersSeeEveryEventOnceFromAnyCursor(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		seen := make(map[int]uint64)
		var wg sync.WaitGroup
		start := func(n int, after uint64) {
			wg.Go(func() {
				_ = follow(ctx, t, h, after, func(e dormouse.Event) {
					mu.Lock()
					seen[n] = e.Seq
					mu.Unlock()
				})
			})
		}
		for i := range 20 {
			if i > 0 {
				start(i, uint64(i%3))
			}
			h.mustPrompt(fmt.Sprint("p", i), script("effect a"))
			settle(time.Duration(i) * time.Millisecond)
		}
		settle(time.Minute)
		end := uint64(len(h.checked()))
		stop()
		wg.Wait()
		for n, last := range seen {
			if last != end {
				t.Errorf("follower %d ended at %d of %d", n, last, end)
			}
		}
		if len(seen) != 19 {
			t.Errorf("%d followers saw something", len(seen))
		}
	})
}

func TestASlowFollowerIsCutOffWithItsCursorAndReturnsWithoutAGap(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		slow, err := h.live.Follow(t.Context(), h.id, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		if _, err := slow.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = slow.Next(t.Context()) }() // live now, then asleep
		synctest.Wait()
		for i := range 6 {
			h.mustPrompt(fmt.Sprint("p", i), strings.Repeat("x", 1<<20)+` SCRIPT[{"text":"ok"}]`)
			settle(time.Second)
		}
		settle(time.Minute)
		var got error
		for got == nil {
			_, got = slow.Next(t.Context())
		}
		if !errors.Is(got, dormouse.ErrBehind) {
			t.Fatalf("got %v", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		last := slow.Cursor()
		go func() { _ = follow(ctx, t, h, last, func(e dormouse.Event) { last = e.Seq }) }()
		settle(time.Second)
		stop()
		synctest.Wait()
		if end := uint64(len(h.log())); last != end {
			t.Errorf("returned and saw %d of %d", last, end)
		}
	})
}

func TestACursorFromTheFutureIsRefused(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		if _, err := h.live.Follow(t.Context(), h.id, 99); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAFollowerMissesNothingThatWasWrittenUnawares(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", "hello")
		settle(time.Second)
		f, err := h.live.Follow(t.Context(), h.id, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var got []uint64
		followed := make(chan error, 1)
		go func() {
			for {
				items, err := f.Next(t.Context())
				if err != nil {
					followed <- err
					return
				}
				for _, i := range items {
					if i.Delta == nil {
						got = append(got, i.Event.Seq)
					}
				}
			}
		}()
		settle(time.Second)
		first := true
		h.store.set(func(b store.Batch) (error, error) {
			if !first || len(b.Events) == 0 {
				return nil, nil
			}
			first = false
			return nil, dormouse.ErrUnknownOutcome
		})
		h.mustPrompt("q", "hello")
		settle(time.Minute)
		h.live.EndFollowers()
		if err := <-followed; !errors.Is(err, dormouse.ErrClosing) {
			t.Fatal(err)
		}
		for i, seq := range got {
			if seq != uint64(i)+1 {
				t.Fatalf("event %d came at place %d", seq, i+1)
			}
		}
		if n := len(h.log()); len(got) != n {
			t.Errorf("%d of %d events", len(got), n)
		}
	})
}

func TestAnEventReadBeforeItWasToldIsNotTakenTwice(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		settle(time.Second)
		h.store.mu.Lock()
		h.store.linger = time.Second
		h.store.mu.Unlock()
		go func() { _ = h.prompt("p", "hello") }() // the log shows whether it was taken
		time.Sleep(500 * time.Millisecond)         // durable, and the followers were not told
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		seen := uint64(0)
		_ = follow(ctx, t, h, 0, func(e dormouse.Event) { seen = e.Seq })
		if end := uint64(len(h.checked())); seen != end {
			t.Errorf("saw %d of %d", seen, end)
		}
	})
}

func TestAPageOfLargeEventsIsCutShort(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		for i := range 4 {
			h.mustPrompt(fmt.Sprint("p", i), strings.Repeat("x", 1<<20)+` SCRIPT[{"text":"ok"}]`)
		}
		settle(time.Minute)
		page, err := h.live.Events(t.Context(), h.id, 0, 1000)
		if all := len(h.checked()); err != nil || len(page) == 0 || len(page) >= all {
			t.Errorf("a page of %d of %d events, %v", len(page), all, err)
		}
	})
}

func TestAFollowerThatHadNotReadAllOfADeletedSessionIsTold(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", `SCRIPT[{"text":"before"}]`)
		settle(time.Second)
		f, err := h.live.Follow(t.Context(), h.id, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		h.mustPrompt("q", `SCRIPT[{"text":"after"}]`) // the feed begins here, and history before it
		settle(time.Second)
		if err := h.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if items, err := f.Next(t.Context()); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("it was given %d items, %v", len(items), err)
		}
	})
}
