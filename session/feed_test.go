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
