package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// clock is what a server believes the time to be.
type clock struct {
	t    *testing.T
	path string
}

// newTimed starts a server whose clock can be set.
func newTimed(t *testing.T) (*world, clock) {
	t.Helper()
	c := clock{t: t, path: filepath.Join(t.TempDir(), "clock")}
	w := newWorld(t, func(s *rig.Server) {
		s.Binary, s.Env = crashing(t), []string{"DORMOUSE_CLOCK=" + c.path}
	})
	w.untimed = true
	return w, c
}

// off sets the clock before or behind ours.
func (c clock) off(d time.Duration) { c.set(d.String()) }

func (c clock) set(text string) {
	c.t.Helper()
	next := c.path + ".next"
	must(c.t, os.WriteFile(next, []byte(text), 0o600))
	must(c.t, os.Rename(next, c.path)) // never half of it
}

// settlesWithin is how long a session may take to rest once a fault is over.
const settlesWithin = 10 * time.Second

// TestB29: a clock that is set while turns run, while one waits for its next
// attempt and while the server is killed. None is lost, doubled or stuck.
func TestB29ClockThatIsSetLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		set   func(clock)
		holds bool // what waits for a time waits for the clock
	}{
		{"an hour ahead", func(c clock) { c.off(time.Hour) }, false},
		{"an hour back", func(c clock) { c.off(-time.Hour) }, false},
		{"a day ahead", func(c clock) { c.off(24 * time.Hour) }, false},
		{"a day back", func(c clock) { c.off(-24 * time.Hour) }, false},
		{"ten minutes back", func(c clock) { c.off(-10 * time.Minute) }, false},
		{"standing still", func(c clock) { c.set(time.Now().UTC().Format(time.RFC3339Nano)) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, clock := newTimed(t)
			busy, idle := w.create(nil), w.create(options{"sleep_after": "2s"})
			wait, open := w.gate()
			busy.send("busy", busy.script(rig.Bash(busy.marked(wait)), rig.Say("whatever the clock says")))
			idle.send("one", idle.script(rig.Bash(idle.marked("true")), rig.Say("one")))
			busy.begun(2)
			idle.sees(dormouse.TurnEnded, 1)
			before := w.fails()

			c.set(clock)
			fresh := w.create(cold)
			fresh.send("one", fresh.script(rig.Say("under another clock")))
			fresh.within(settlesWithin)
			killed := w.fails()
			w.kill(nil)
			for _, a := range []*actor{before, killed} {
				if !c.holds {
					a.within(settlesWithin)
				}
			}
			fresh.send("two", fresh.script(rig.Bash(fresh.marked("true")), rig.Say("and after a kill")))
			fresh.within(settlesWithin)
			open()
			busy.within(settlesWithin)
			idle.send("two", idle.script(rig.Bash(idle.marked("true")), rig.Say("awake or woken")))
			idle.sees(dormouse.TurnEnded, 2)
			after := w.fails()

			clock.off(0)
			for _, a := range []*actor{before, killed, after} {
				a.within(settlesWithin)
				if said := only(a.log(), dormouse.AgentMessage); len(said) != 1 || words(said[0]) != "the second time" {
					t.Errorf("said were %s", types(said))
				}
			}
			if n := busy.effects("begin"); n != 4 {
				t.Errorf("%d commands began, want 4", n)
			}
		})
	}
}

// fails makes a session whose model has failed once, and is to be asked again.
func (w *world) fails() *actor {
	w.t.Helper()
	a := w.create(cold)
	a.send("fails once", a.script(rig.Step{"text": "the second time", "error": 529, "times": 1, "retry_after_ms": 1500}))
	a.sees(dormouse.SessionStatusRescheduled, 1)
	return a
}

// TestB31: a second that comes twice, again and again, as when a leap second is
// inserted by setting the clock back.
func TestB31RepeatedSecondsChangeNothing(t *testing.T) {
	t.Parallel()
	w, clock := newTimed(t)
	a := w.create(nil)
	for n := range 10 {
		a.send(string(rune('a'+n)), a.script(rig.Bash(a.marked("sleep 0.1")), rig.Say("next")))
	}
	for n := range 20 {
		clock.off(-time.Duration(n%2) * time.Second)
		must(t, sleep.For(w.ctx, 50*time.Millisecond))
	}
	w.kill(func() { clock.off(-time.Second) })
	a.rests()
	for i, e := range only(a.log(), dormouse.UserMessage) {
		if want := dormouse.PromptID(a.ID, string(rune('a'+i))); e.ID != want {
			t.Errorf("prompt %d to be taken was %s, want the one that came %d", i, e.ID, i)
		}
	}
}

// within waits for the session to rest, and not longer than it may take.
func (a *actor) within(d time.Duration) {
	a.w.t.Helper()
	ctx, cancel := context.WithTimeout(a.w.ctx, d)
	defer cancel()
	if shown, err := a.Idle(ctx); err != nil {
		a.w.t.Fatalf("the session is %s and does not rest: %v; its log:\n%s", shown.Phase, err, types(a.log()))
	}
}
