package session_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

func TestAPromptThatWasCancelledAMomentAgoIsNotQueuedAgain(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("busy", script("sleep 1h"))
		settle(time.Second)
		var once sync.Once
		h.store.set(func(store.Batch) (error, error) {
			once.Do(func() { time.Sleep(time.Second) }) // what follows waits, and is decided together
			return nil, nil
		})
		var wg sync.WaitGroup
		for _, ask := range []func() error{
			func() error { return h.prompt("first", "holds the actor") },
			func() error { return h.prompt("p", "once") },
			func() error { return h.do(law.Cancel{Prompt: dormouse.PromptID(h.id, "p")}) },
			func() error { return h.prompt("p", "once") },
		} {
			wg.Go(func() {
				if err := ask(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		settle(2 * time.Hour)
		queued := 0
		for _, e := range h.checked() {
			if e.Type == dormouse.PromptQueued && e.ID == dormouse.PromptID(h.id, "p") {
				queued++
			}
		}
		if queued != 1 {
			t.Errorf("queued %d times", queued)
		}
	})
}

func TestABodyThatIsLostCostsItsPromptAndNothingElse(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("busy", script("sleep 10s"))
		h.mustPrompt("big", strings.Repeat("x", 100_000))
		h.mustPrompt("next", `SCRIPT[{"text":"still here"}]`)
		settle(time.Second)
		h.blobs.mu.Lock()
		clear(h.blobs.m) // before the next server can read them
		h.blobs.mu.Unlock()
		h.crash()
		settle(time.Minute)
		events, err := h.store.Read(t.Context(), h.id, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if n := countType(events, dormouse.PromptCancelled); n != 1 {
			t.Errorf("%d prompts cancelled, want the one that cannot be read", n)
		}
		if n := countType(events, dormouse.UserMessage); n != 2 || h.phase() != dormouse.PhaseReady {
			t.Errorf("%d prompts ran, phase %s", n, h.phase())
		}
		if rows, err := history.Rebuild(t.Context(), h.store, h.blobs, h.id); err != nil || rows.Session.Phase != dormouse.PhaseReady {
			t.Errorf("laid out again it is %s, %v", rows.Session.Phase, err)
		}
	})
}
