package session_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// shown collects what followers are shown of replies on their way.
type shown struct {
	mu   sync.Mutex
	text string // guarded by mu
}

func (s *shown) so() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// watch follows the session until the test is over.
func (h *house) watch(ctx context.Context) *shown {
	h.t.Helper()
	f, err := h.live.Follow(ctx, h.id, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	s := new(shown)
	go func() {
		defer f.Close()
		for {
			items, err := f.Next(ctx)
			if err != nil {
				return
			}
			for _, i := range items {
				if i.Delta != nil {
					s.mu.Lock()
					s.text += i.Delta.Text
					s.mu.Unlock()
				}
			}
		}
	}()
	return s
}

// What a follower has seen of a reply must be in the log, whatever happens next. Here
// the store refuses it: a follower that was shown it would have seen text that is not
// stored.
func TestAChunkIsStoredBeforeItIsShown(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		seen := h.watch(ctx)
		refused := h.full(func(b store.Batch) bool { return len(b.Chunks) > 0 })
		h.mustPrompt("p", slowly)
		settle(3500 * time.Millisecond)
		if refused.Load() == 0 {
			t.Fatal("no chunk came")
		}
		if got := seen.so(); got != "" {
			t.Errorf("%q was shown, and is not stored", got)
		}
		h.store.set(nil)
		settle(time.Minute)
		if got := seen.so(); got == "" || !strings.HasPrefix("abcdefgh", got) {
			t.Errorf("%q was shown once there was room", got)
		}
		h.checked()
	})
}
