package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// However long the disk is full, what sleeps is woken by the generation that was to
// wake it, turns lose no attempt, people are told, and a session can be removed.
func TestASandboxWithoutRoomOnTheDiskIsOnlyDelayed(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true, SleepAfter: time.Minute})
		settle(2 * time.Minute)
		if h.phase() != dormouse.PhaseHibernated {
			t.Fatalf("it is %s", h.phase())
		}
		h.boxes.setBroken(fmt.Errorf("open volume: %w", dormouse.ErrFull))
		h.mustPrompt("p", script("effect once"))
		settle(time.Hour)
		answer, err := h.exec("sevt_x", "effect never")
		if err != nil || !strings.Contains(answer.Error, dormouse.ErrFull.Error()) {
			t.Errorf("a command is answered with %+v, %v", answer, err)
		}
		if h.count(dormouse.SandboxLost) != 0 || h.count(dormouse.AttemptStarted) != 1 || h.phase() != dormouse.PhaseRunning {
			t.Errorf("it is %s, %d attempts", h.phase(), h.count(dormouse.AttemptStarted))
		}
		h.boxes.setBroken(nil)
		settle(time.Second)
		if h.boxes.effect("once") != 1 || h.boxes.effect("never") != 0 || h.state().Sandbox.Generation != 2 {
			t.Errorf("with room again: %v, sandbox %d", h.boxes.effects, h.state().Sandbox.Generation)
		}
		h.checked()
	})
}

func TestASessionWhoseSandboxHasNoRoomCanBeDeleted(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.boxes.setBroken(dormouse.ErrFull)
		h.create(dormouse.Created{Warm: true})
		settle(time.Minute)
		if err := h.do(session.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(3 * time.Second)
		if len(h.boxes.removed) != 1 {
			t.Error("it is still there")
		}
	})
}
