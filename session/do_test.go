package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

func TestAnyServerAnswersByAskingTheOneThatHasTheSession(t *testing.T) {
	together(t, 3, func(t *testing.T, f *cluster) {
		a, b, c := f.servers[0], f.servers[1], f.servers[2]
		a.create(dormouse.Created{})
		a.mustPrompt("p", script("sleep 5s"))
		b.on(a).mustPrompt("q", "hello")
		b.mustPrompt("q", "hello") // the same id: the same prompt
		if err := c.on(a).prompt("q", "another"); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("another body: %v", err)
		}
		if err := c.do(law.Interrupt{ID: "sevt_i"}); err != nil {
			t.Error(err)
		}
		settle(time.Minute / 3)
		if n := countType(b.checked(), dormouse.UserMessage); n != 2 {
			t.Errorf("%d messages", n)
		}
		if a.live.Loaded() != 1 || b.live.Loaded()+c.live.Loaded() != 0 {
			t.Errorf("%d, %d and %d loaded", a.live.Loaded(), b.live.Loaded(), c.live.Loaded())
		}
		if n := b.live.Counts().Forwarded; n != 2 {
			t.Errorf("%d commands forwarded", n)
		}
		if err := b.live.Do(t.Context(), "sesn_00000000000000000000000000", dormouse.User("ada"), law.Wake{}); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("a session nobody has: %v", err)
		}
	})
}

func TestAPromptForADeadServerIsTakenOnceItsLeaseIsOver(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", "hello")
		settle(time.Second)
		a.kill()
		start := time.Now()
		b.on(a).mustPrompt("q", "hello")
		if took := time.Since(start); took > lease+time.Second {
			t.Errorf("it took %v", took)
		}
		settle(time.Minute)
		if n := countType(b.checked(), dormouse.UserMessage); n != 2 {
			t.Errorf("%d messages", n)
		}
	})
}

func TestAPausedServerHoldsNobodyUpForLong(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", "hello")
		settle(time.Second)
		a.hung.Store(true)
		a.view.cut()
		start := time.Now()
		b.on(a).mustPrompt("q", "hello")
		if took := time.Since(start); took > lease+lease/3+time.Second {
			t.Errorf("it took %v", took)
		}
		settle(time.Second)
		if n := countType(b.checked(), dormouse.UserMessage); n != 2 {
			t.Errorf("%d messages", n)
		}
	})
}

func TestAnAnswerThatWasLostOnTheWayIsLookedUp(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", script("sleep 10s"))
		settle(time.Second)
		left := 0
		f.fault = func(law.Verb) error {
			if left--; left >= 0 {
				return dormouse.ErrUnknownOutcome
			}
			return nil
		}
		b.on(a)
		for name, c := range map[string]struct {
			verb  law.Verb
			known bool
		}{
			"open":      {law.OpenThread{Thread: "sthr_second"}, true},
			"describe":  {law.Describe{Title: new("title")}, false}, // it might undo a later change by another client
			"interrupt": {law.Interrupt{ID: "sevt_i"}, false},
		} {
			f.mu.Lock()
			left = 1
			f.mu.Unlock()
			err := b.do(c.verb)
			if c.known && err != nil || !c.known && !errors.Is(err, dormouse.ErrUnknownOutcome) {
				t.Errorf("%s: %v", name, err)
			}
		}
		f.mu.Lock()
		left = 2
		f.mu.Unlock()
		b.mustPrompt("q", "hello")
		settle(time.Minute)
		events := b.checked()
		if m, n := countType(events, dormouse.UserMessage), countType(events, dormouse.SessionThreadCreated); m != 2 || n != 1 {
			t.Errorf("%d messages, %d threads", m, n)
		}
	})
}

// What the store cannot say is asked of the log, by an actor that reloads.
func TestACommitWhoseAnswerWasLostIsLookedUp(t *testing.T) {
	for _, landed := range []bool{true, false} {
		t.Run(fmt.Sprint("landed ", landed), func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{})
				settle(time.Second)
				lose := func() {
					first := true
					h.store.set(func(b store.Batch) (error, error) {
						if !first || len(b.Events) == 0 {
							return nil, nil
						}
						first = false
						if landed {
							return nil, dormouse.ErrUnknownOutcome
						}
						return dormouse.ErrUnknownOutcome, nil
					})
				}
				lose()
				h.mustPrompt("p", `SCRIPT[{"text":"one","delay_ms":60000}]`)
				settle(time.Second)
				lose()
				if err := h.do(law.Interrupt{ID: "sevt_i"}); !errors.Is(err, dormouse.ErrUnknownOutcome) {
					t.Errorf("an interrupt, which twice is not once: %v", err)
				}
				settle(time.Second)
				lose()
				if err := h.do(law.Terminate{Reason: "enough"}); err != nil {
					t.Errorf("terminate: %v", err)
				}
				settle(time.Minute)
				events := h.checked()
				if m, e := countType(events, dormouse.UserMessage), countType(events, dormouse.SessionTerminated); m != 1 || e != 1 {
					t.Errorf("%d messages, %d ends", m, e)
				}
			})
		})
	}
}

func TestAPromptThatWasAcceptedAndThenCutOffByTheEndWasAccepted(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		settle(time.Second)
		first := true
		h.store.set(func(b store.Batch) (error, error) {
			if !first || !has(dormouse.PromptQueued)(b) {
				return nil, nil
			}
			first = false
			go func() { _ = h.do(law.Terminate{Reason: "enough"}) }()
			return nil, dormouse.ErrUnknownOutcome
		})
		h.mustPrompt("p", "hello")
		settle(time.Minute)
		if got := h.phase(); got != dormouse.PhaseTerminated {
			t.Errorf("phase %s", got)
		}
		h.checked()
	})
}

// forgetful makes a session and, the first times, cannot say whether it did.
type forgetful struct {
	store.Store
	times  int
	landed bool
}

func (f *forgetful) Create(ctx context.Context, b store.Batch) error {
	if f.times--; f.times < 0 {
		return f.Store.Create(ctx, b)
	}
	if f.landed {
		_ = f.Store.Create(ctx, b)
	}
	return dormouse.ErrUnknownOutcome
}

func TestASessionWhoseCreationWasNotAnsweredIsOneSession(t *testing.T) {
	for _, landed := range []bool{true, false} {
		t.Run(fmt.Sprint("landed ", landed), func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.reopen(func(s store.Store) store.Store { return &forgetful{Store: s, times: 2, landed: landed} })
				h.create(dormouse.Created{})
				h.mustPrompt("p", "hello")
				settle(time.Second)
				if n := countType(h.checked(), dormouse.SessionCreated); n != 1 {
					t.Errorf("it was made %d times", n)
				}
			})
		})
	}
}

func TestAServerThatCannotBeReachedIsAReasonToSendAgain(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", "hello")
		a.dead.Store(true) // the store hears from it, and no server does
		f.dial = 2 * time.Second
		if err := b.on(a).prompt("q", "hello"); !errors.Is(err, dormouse.ErrLeaseLost) || !errors.Is(err, fleet.ErrUnreached) {
			t.Errorf("got %v", err)
		}
		a.dead.Store(false)
		b.mustPrompt("q", "hello")
	})
}

// An actor that was held up finds the answer to a command in what it believes.
// That is no answer once another server may have written the session.
func TestAServerThatLostItsLeaseAnswersNothingFromWhatItBelieves(t *testing.T) {
	for range 8 { // which of two things an actor sees first is a matter of luck
		together(t, 2, func(t *testing.T, f *cluster) {
			a, b := f.servers[0], f.servers[1]
			a.create(dormouse.Created{})
			a.mustPrompt("p", `SCRIPT[{"text":"done"}]`)
			settle(time.Second)
			a.view.freezes.Store(true)
			a.view.cut()
			go func() { _ = a.prompt("p", `SCRIPT[{"text":"done"}]`) }() // which is looked up
			settle(100 * time.Millisecond)
			interrupted := make(chan error, 1)
			go func() { interrupted <- a.do(law.Interrupt{ID: "sevt_i"}) }()
			settle(2 * lease)
			b.on(a).mustPrompt("q", script("sleep 1h"))
			settle(time.Second)
			a.view.giveBack()
			if err := <-interrupted; err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
			if n := countType(b.log(), dormouse.UserInterrupt); n != 1 {
				t.Errorf("an interrupt was acknowledged, and %d are in the log", n)
			}
		})
	}
}
