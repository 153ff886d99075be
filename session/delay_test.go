package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// However long the disk is full, what sleeps is woken by the generation that was to
// wake it, turns lose no attempt, people are told, and a session can be removed.
func TestASandboxWithoutDiskSpaceIsOnlyDelayed(t *testing.T) {
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

func TestASessionWhoseSandboxHasNoDiskSpaceCanBeDeleted(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.boxes.setBroken(dormouse.ErrFull)
		h.create(dormouse.Created{Warm: true})
		settle(time.Minute)
		if err := h.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(3 * time.Second)
		if len(h.boxes.removed) != 1 {
			t.Error("it is still there")
		}
	})
}

// On a full disk, commands that free space may use the reserve, and no others.
func TestOnlyWhatFreesSpaceUsesTheReserve(t *testing.T) {
	for name, verb := range map[string]law.Verb{"terminate": law.Terminate{}, "delete": law.Delete{}, "archive": law.Archive{}} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{Warm: true})
				settle(time.Second)
				given := 0
				h.releaseReserve = func() bool { // every step of it needs some
					given++
					h.store.set(nil)
					return given < 20
				}
				h.crash() // with its lease, too
				h.store.set(func(store.Batch) (error, error) { return dormouse.ErrFull, nil })
				if err := h.prompt("p", "hello"); !errors.Is(err, dormouse.ErrFull) || given > 0 {
					t.Errorf("a prompt is answered with %v, and was given %d times", err, given)
				}
				if err := h.do(verb); err != nil {
					t.Errorf("it is answered with %v", err)
				}
				if given == 0 {
					t.Error("nothing was given")
				}
			})
		})
	}
}
