package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

func (h *house) exec(id dormouse.EventID, command string) (dormouse.ExecAnswer, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	return h.live.Exec(ctx, h.id, dormouse.User("ada"), dormouse.ExecAsk{Exec: id, Command: command}, nil)
}

func TestACommandRunsOnceAndIsAnswered(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		for range 2 { // the second time it is only asked how it went
			if a, err := h.exec("sevt_x", "effect a"); err != nil || a.Exit != 0 || a.Exec != "sevt_x" {
				t.Fatalf("answered %+v, %v", a, err)
			}
		}
		settle(time.Second)
		if n := h.boxes.effect("a"); n != 1 {
			t.Errorf("it ran %d times", n)
		}
		h.checked()
	})
}

func TestACommandIsFoundAgainAfterACrash(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		if err := h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_x", Command: "sleep 10s"}}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		h.crash()
		if a, err := h.exec("sevt_x", "sleep 10s"); err != nil || a.Error != "" {
			t.Errorf("answered %+v, %v", a, err)
		}
		h.checked()
	})
}

func TestACommandOfADeadSandboxIsOfUnknownOutcome(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		time.AfterFunc(5*time.Second, func() { h.boxes.kill(1) })
		if a, err := h.exec("sevt_x", "sleep 10s"); err != nil || !a.Unknown {
			t.Errorf("answered %+v, %v", a, err)
		}
		if a, err := h.exec("sevt_y", "effect b"); err != nil || a.Error != "" {
			t.Errorf("the next was answered %+v, %v", a, err)
		}
		h.checked()
	})
}

func TestACommandThatNoSandboxTakesIsRefused(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.boxes.broken = errors.New("out of cheese")
		h.create(dormouse.Created{})
		if a, err := h.exec("sevt_x", "effect a"); err != nil || !strings.Contains(a.Error, "out of cheese") {
			t.Errorf("answered %+v, %v", a, err)
		}
		h.checked()
	})
}

func TestACommandCanBeEnded(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		time.AfterFunc(time.Second, func() { _ = h.do(law.EndExec{Exec: "sevt_x"}) })
		if a, err := h.exec("sevt_x", "sleep 1h"); err != nil || !a.Killed {
			t.Errorf("answered %+v, %v", a, err)
		}
		if err := h.do(law.EndExec{Exec: "sevt_x"}); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("ending it again: %v", err)
		}
		h.checked()
	})
}

func TestASessionAtRestSleepsOnlyAfterItsCommands(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true, SleepAfter: time.Minute})
		settle(time.Second)
		if err := h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_x", Command: "sleep 10m"}}); err != nil {
			t.Fatal(err)
		}
		settle(9 * time.Minute)
		if h.phase() != dormouse.PhaseReady {
			t.Errorf("it is %s while a command runs", h.phase())
		}
		settle(3 * time.Minute)
		if h.phase() != dormouse.PhaseHibernated {
			t.Errorf("it is %s after it", h.phase())
		}
		h.checked()
	})
}

// Nothing can have run in a sandbox that this server never reached: the command is not
// of unknown outcome, it runs in the next one.
func TestTheFirstCommandAfterServerAndSandboxDiedRuns(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		h.cut()
		h.boxes.kill(1)
		h.open()
		if a, err := h.exec("sevt_x", "effect a"); err != nil || a.Unknown || a.Error != "" {
			t.Errorf("answered %+v, %v", a, err)
		}
		if n := h.boxes.effect("a"); n != 1 {
			t.Errorf("it ran %d times", n)
		}
		if n := countType(h.checked(), dormouse.OpUnknown); n != 0 {
			t.Errorf("%d ops are of unknown outcome", n)
		}
	})
}
