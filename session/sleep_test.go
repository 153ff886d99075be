package session_test

import (
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func TestASandboxInWhichSomethingGoesOnStaysAwakeForSoLong(t *testing.T) {
	for name, usage := range map[string]runner.Usage{
		"task": {Tasks: 1}, "terminal": {Terminals: 1},
		"a runner that says so": {Active: time.Date(2226, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.boxes.usage = usage
				h.create(dormouse.Created{Warm: true, SleepAfter: 5 * time.Minute})
				settle(25 * time.Minute)
				if h.phase() != dormouse.PhaseReady || h.count(dormouse.SandboxStirred) == 0 {
					t.Errorf("it is %s after 25 minutes", h.phase())
				}
				settle(20 * time.Minute)
				if h.phase() != dormouse.PhaseHibernated {
					t.Errorf("it is %s after 45 minutes", h.phase())
				}
				h.checked()
			})
		})
	}
}

func TestASandboxInWhichNothingGoesOnSleeps(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true, SleepAfter: 5 * time.Minute})
		settle(6 * time.Minute)
		if h.phase() != dormouse.PhaseHibernated || h.count(dormouse.SandboxStirred) != 0 {
			t.Errorf("it is %s", h.phase())
		}
		h.checked()
	})
}
