package law_test

import (
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
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
