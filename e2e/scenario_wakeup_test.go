package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// with are the options of a cold session that has these tools.
func with(tools ...string) options {
	var all []map[string]string
	for _, name := range tools {
		all = append(all, map[string]string{"name": name})
	}
	return options{"warm": false, "tools": all}
}

// wakeup schedules one and returns its id.
func (a *actor) wakeup(o options) (dormouse.WakeupID, error) {
	var made struct {
		ID dormouse.WakeupID `json:"id"`
	}
	_, err := a.Once(a.w.ctx, http.MethodPost, a.Path("/wakeups"), o, &made)
	return made.ID, err
}

// scheduled lists what the session will ask itself.
func (a *actor) scheduled() []dormouse.WakeupID {
	a.w.t.Helper()
	var answer struct {
		Wakeups []struct {
			ID dormouse.WakeupID `json:"id"`
		} `json:"wakeups"`
	}
	must(a.w.t, a.Get(a.w.ctx, a.Path("/wakeups"), &answer))
	var all []dormouse.WakeupID
	for _, w := range answer.Wakeups {
		all = append(all, w.ID)
	}
	return all
}

func TestScenario33TwentyFirstWakeupIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(with("wakeup_schedule", "wakeup_cancel"))
	later := rig.Use("wakeup_schedule", map[string]any{"in_seconds": 3600, "prompt": "much later"})
	a.send("agent", a.script(later, rig.Say("scheduled")))
	a.rests()
	for range dormouse.MaxWakeups - 1 {
		_, err := a.wakeup(options{"in": "1h", "prompt": "later"})
		must(t, err)
	}
	w.kill(nil) // what is scheduled is durable, and so is how much of it there is
	_, err := a.wakeup(options{"in": "1h", "prompt": "one too many"})
	refused(t, err, http.StatusConflict, "conflict")
	a.send("again", a.script(later, rig.Say("it could not be")))
	a.rests()
	results := only(a.log(), dormouse.AgentToolResult)
	if last := results[len(results)-1]; !rig.Decode[dormouse.ToolResult](last).IsError || !strings.Contains(words(last), "20 wake-ups are scheduled already") {
		t.Errorf("the agent was told %s", last.Payload)
	}
	all := a.scheduled()
	if len(all) != dormouse.MaxWakeups {
		t.Fatalf("%d are scheduled, want %d", len(all), dormouse.MaxWakeups)
	}

	// A cancelled wake-up frees its place.
	_, err = a.Once(w.ctx, http.MethodDelete, a.Path("/wakeups/"+string(all[0])), nil, nil)
	must(t, err)
	_, err = a.wakeup(options{"in": "1h", "prompt": "in its place"})
	must(t, err)
	a.send("cancel", a.script(rig.Use("wakeup_cancel", map[string]any{"id": all[1]}), later, rig.Say("moved")))
	a.rests()
	all = a.scheduled()
	if len(all) != dormouse.MaxWakeups {
		t.Errorf("%d are scheduled, want %d", len(all), dormouse.MaxWakeups)
	}
	_, err = a.wakeup(options{"in": "1h", "prompt": "one too many"})
	refused(t, err, http.StatusConflict, "conflict")
}

func TestWakeupDueWhileTheServerWasDownFiresOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(cold)
	due := time.Now().Add(700 * time.Millisecond).UTC()
	id, err := a.wakeup(options{"at": due.Format(time.RFC3339Nano), "prompt": a.script(rig.Say("awake"))})
	must(t, err)
	w.kill(func() { must(t, sleep.For(w.ctx, time.Until(due)+300*time.Millisecond)) })
	a.sees(dormouse.WakeupFired, 1)
	a.sees(dormouse.TurnEnded, 1)
	w.kill(nil) // and not again
	a.rests()
	log := a.log()
	fired := only(log, dormouse.WakeupFired)
	if len(fired) != 1 || rig.Decode[dormouse.WakeupFact](fired[0]).ID != id {
		t.Errorf("fired were %s, want %s once", types(fired), id)
	}
	if said := only(log, dormouse.AgentMessage); len(said) != 1 || words(said[0]) != "awake" {
		t.Errorf("the agent said %s", types(said))
	}
	if left := a.scheduled(); len(left) > 0 {
		t.Errorf("still scheduled are %v", left)
	}
}

// A schedule that was missed many times is made up for once.
func TestWakeupsMissedWhileTheServerWasDownFireOnce(t *testing.T) {
	t.Parallel()
	w, c := newTimed(t)
	c.off(0)
	a := w.create(cold)
	often, err := a.wakeup(options{"cron": "*/5 * * * *", "prompt": a.script(rig.Say("tick"))})
	must(t, err)
	once, err := a.wakeup(options{"in": "30m", "prompt": a.script(rig.Say("once"))})
	must(t, err)
	w.kill(func() { c.off(3 * time.Hour) })
	a.sees(dormouse.WakeupFired, 2)
	a.sees(dormouse.TurnEnded, 2)
	log := a.log()
	got := make(map[dormouse.WakeupID]int)
	for _, e := range only(log, dormouse.WakeupFired) {
		fact := rig.Decode[dormouse.WakeupFact](e)
		got[fact.ID]++
		if fact.ID == often && !fact.Next.After(e.Time) {
			t.Errorf("it fires next at %s, and it is %s", fact.Next, e.Time)
		}
	}
	if got[often] != 1 || got[once] != 1 {
		t.Errorf("fired were %v, want each once", got)
	}
	if left := a.scheduled(); fmt.Sprint(left) != fmt.Sprint([]dormouse.WakeupID{often}) {
		t.Errorf("left are %v, want %s", left, often)
	}
	c.off(3*time.Hour + 6*time.Minute)
	a.sees(dormouse.WakeupFired, 3)
	_, err = a.Once(w.ctx, http.MethodDelete, a.Path("/wakeups/"+string(often)), nil, nil)
	must(t, err)
}

func TestWakeupWakesAHibernatedSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	a.phase(dormouse.PhaseReady)
	must(t, a.Command(w.ctx, "hibernate", nil))
	a.phase(dormouse.PhaseHibernated)
	_, err := a.wakeup(options{"in": "200ms", "prompt": a.script(rig.Bash(a.marked("true")), rig.Say("up again"))})
	must(t, err)
	a.sees(dormouse.WakeupFired, 1)
	a.sees(dormouse.TurnEnded, 1)
	if shown := a.rests(); shown.Sandbox.Generation != 2 || a.effects("end") != 1 {
		t.Errorf("the sandbox is of generation %d, and %d commands ran", shown.Sandbox.Generation, a.effects("end"))
	}
}
