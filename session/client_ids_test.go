package session_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// However much comes between and whichever server dies, what was asked for under an
// id is not done again, and something else is not done under it either.
func TestACommandIsKnownByItsIDAsLongAsTheSessionLives(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		const others = 80
		if a, err := h.exec("sevt_x", "effect a"); err != nil || a.Exit != 0 {
			t.Fatalf("answered %+v, %v", a, err)
		}
		for i := range others {
			if _, err := h.exec(dormouse.EventID(fmt.Sprint("sevt_other", i)), "effect b"); err != nil {
				t.Fatal(err)
			}
		}
		again := func(when string) {
			t.Helper()
			if a, err := h.exec("sevt_x", "effect a"); err != nil || a.Exec != "sevt_x" || a.Exit != 0 {
				t.Errorf("%s: answered %+v, %v", when, a, err)
			}
			if err := h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_x", Command: "effect a"}}); err != nil {
				t.Errorf("%s: asked for again: %v", when, err)
			}
			if _, err := h.exec("sevt_x", "effect c"); !errors.Is(err, dormouse.ErrConflict) {
				t.Errorf("%s: another command under the same id: %v", when, err)
			}
			if err := h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_x", Command: "effect c"}}); !errors.Is(err, dormouse.ErrConflict) {
				t.Errorf("%s: another command under the same id, asked of the actor: %v", when, err)
			}
			prompt := law.Prompt{ID: "sevt_x", Body: "sha256:b", Content: []dormouse.Block{dormouse.Text("effect a")}}
			if err := h.do(prompt); !errors.Is(err, dormouse.ErrConflict) {
				t.Errorf("%s: a prompt under the id of a command: %v", when, err)
			}
			settle(time.Second)
			if a, c := h.boxes.effect("a"), h.boxes.effect("c"); a != 1 || c != 0 {
				t.Errorf("%s: it ran %d times, another %d times", when, a, c)
			}
		}
		again("by the same server")
		h.crash()
		settle(time.Second)
		again("by the next server")
		if err := h.do(law.Terminate{Reason: "done"}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		again("by a session that has ended")
		if err := h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_y", Command: "effect c"}}); !errors.Is(err, dormouse.ErrTerminated) {
			t.Errorf("a new one by a session that has ended: %v", err)
		}
		h.checked()
	})
}

func TestAWakeupThatHasFiredIsNotScheduledAgainByItsRetry(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		v := law.Schedule{ID: "wake_x", In: time.Minute, Content: []dormouse.Block{dormouse.Text("effect a")}}
		for range 2 {
			if err := h.do(v); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
		}
		settle(time.Hour)
		for _, when := range []string{"by the same server", "by the next server"} {
			if err := h.do(v); err != nil {
				t.Errorf("%s: asked for again: %v", when, err)
			}
			for _, other := range []law.Schedule{
				{ID: v.ID, In: v.In, Content: []dormouse.Block{dormouse.Text("other")}},
				{ID: v.ID, In: 2 * v.In, Content: v.Content},
				{ID: v.ID, Cron: "* * * * *", Content: v.Content},
				{ID: v.ID, At: h.now().Add(time.Hour), Content: v.Content},
			} {
				if err := h.do(other); !errors.Is(err, dormouse.ErrConflict) {
					t.Errorf("%s: another wake-up under the same id: %v", when, err)
				}
			}
			settle(time.Hour)
			if n := h.count(dormouse.WakeupFired); n != 1 {
				t.Errorf("%s: it fired %d times", when, n)
			}
			h.crash()
			settle(time.Second)
		}
		// One that was cancelled is over, too.
		v = law.Schedule{ID: "wake_y", In: time.Hour, Content: v.Content}
		for _, verb := range []law.Verb{v, law.Unschedule{ID: "wake_y"}, v} {
			if err := h.do(verb); err != nil {
				t.Fatal(err)
			}
		}
		settle(2 * time.Hour)
		if n := h.count(dormouse.WakeupFired); n != 1 {
			t.Errorf("a wake-up that was cancelled fired: %d", n)
		}
		h.checked()
	})
}
