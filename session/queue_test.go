package session_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// An id that was just drawn is looked up once it may have been recorded.
func TestANewPromptWhoseAnswersWereLostIsOnePrompt(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("first", "hello") // a has it from now on
		settle(time.Second)
		b.on(a)
		left := 20 // by then its turn is over
		f.fault = func(law.Verb) error {
			if left--; left >= 0 {
				return dormouse.ErrUnknownOutcome
			}
			return nil
		}
		p := b.asks("p", "hello")
		p.New = true
		if err := b.do(p); err != nil {
			t.Error(err)
		}
		settle(time.Minute)
		if n := countType(b.checked(), dormouse.UserMessage); n != 2 || left >= 0 {
			t.Errorf("%d messages, and %d answers were not asked for", n, left)
		}
	})
}

func TestWhoseASessionIsIsKnownLoadedOrNot(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Tenant: "moon"})
		for _, loaded := range []bool{false, true} {
			if loaded {
				h.mustPrompt("p", "hello")
			} else {
				settle(time.Hour)
			}
			if got := h.live.Loaded() > 0; got != loaded {
				t.Fatalf("loaded is %v and not %v", got, loaded)
			}
			if tenant, err := h.live.Tenant(t.Context(), h.id); tenant != "moon" || err != nil {
				t.Errorf("loaded %v: %q, %v", loaded, tenant, err)
			}
		}
		for _, id := range []dormouse.SessionID{"sesn_0000000000000000000000000", "no id", ""} {
			if _, err := h.live.Tenant(t.Context(), id); !errors.Is(err, dormouse.ErrNotFound) {
				t.Errorf("%q: %v", id, err)
			}
		}
	})
}
