package session_test

import (
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestAnOpenOpKeepsTheSandboxAwake(t *testing.T) {
	w := running(t, dormouse.Created{Recovery: dormouse.RecoverAsk, SleepAfter: time.Minute})
	w.ask(dormouse.GateNone)
	w.must(law.StartOp{Work: w.work(), Op: w.execOp(dormouse.OpExec)})
	w.now = w.now.Add(time.Hour)
	w.epoch++
	w.must(law.Recover{})
	w.now = w.now.Add(time.Hour)
	if at := law.Want(w.state).Sleep; !at.IsZero() {
		t.Errorf("asleep at %s under a command that runs", at)
	}
	if events, err := w.try(law.Tick{}); err != nil || len(events) > 0 {
		t.Errorf("%v, %v", events, err)
	}
}

func TestATurnThatWaitsForPeopleIsIdleFromThenOn(t *testing.T) {
	w := running(t, dormouse.Created{SleepAfter: time.Minute})
	w.now = w.now.Add(time.Hour)
	w.ask(dormouse.GateAsk)
	w.must(law.Block{Work: w.work()})
	if at := law.Want(w.state).Sleep; !at.Equal(w.now.Add(time.Minute)) {
		t.Errorf("sleeps at %s, blocked since %s", at, w.now)
	}
}

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
