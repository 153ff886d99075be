package e2e

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// opens adds a thread to the session.
func (a *actor) opens(name string) dormouse.ThreadID {
	a.w.t.Helper()
	thread, err := a.OpenThread(a.w.ctx, name)
	must(a.w.t, err)
	return thread
}

func TestThreadRunsBesideThePrimaryOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	beside := a.opens("beside")
	wait, open := w.gate()
	a.send("long", a.script(rig.Bash(a.marked(wait)), rig.Say("the long one")))
	a.begun(1)
	must(t, a.PromptOn(w.ctx, beside, "short", a.script(rig.Bash(a.marked("true")), rig.Say("the short one"))))
	ended := a.sees(dormouse.TurnEnded, 1)
	if ended.Thread != beside {
		t.Errorf("a turn of %s ended first, want one of %s", ended.Thread, beside)
	}
	a.phase(dormouse.PhaseRunning)
	must(t, a.PromptOn(w.ctx, beside, "killed", a.script(rig.Bash(a.marked(wait)), rig.Say("the killed one"))))
	a.begun(3)
	w.kill(open) // both are taken up again
	a.rests()
	log := a.log()
	var said []string
	for _, e := range only(log, dormouse.AgentMessage) {
		said = append(said, words(e))
	}
	slices.Sort(said)
	if want := []string{"the killed one", "the long one", "the short one"}; !slices.Equal(said, want) {
		t.Errorf("the agent said %q, want %q", said, want)
	}
	// The session says that it runs once, and that it rests once, when all do.
	if run, idle := len(only(log, dormouse.SessionStatusRunning)), len(only(log, dormouse.SessionStatusIdle)); run != 1 || idle != 1 {
		t.Errorf("it said %d times that it runs and %d times that it rests", run, idle)
	}
	if n := a.effects("end"); n != 3 {
		t.Errorf("%d commands came to their end, want 3", n)
	}
}

// worked is for how long at least one turn was at work, by the log alone.
func worked(log []dormouse.Event) time.Duration {
	var sum time.Duration
	var since time.Time
	turns := 0
	for _, e := range log {
		switch e.Type { //nolint:exhaustive // the others begin and end no work
		case dormouse.TurnStarted:
			if turns++; turns == 1 {
				since = e.Time
			}
		case dormouse.TurnEnded:
			if turns--; turns == 0 {
				sum += e.Time.Sub(since)
			}
		}
	}
	return sum
}

// active is for how long the server says that turns were at work.
func (a *actor) active() time.Duration {
	a.w.t.Helper()
	var shown struct {
		Metrics struct {
			Active float64 `json:"active_seconds"`
		} `json:"metrics"`
	}
	must(a.w.t, a.Get(a.w.ctx, a.Path(""), &shown))
	return time.Duration(math.Round(shown.Metrics.Active*1e6)) * time.Microsecond
}

func TestScenario49ActiveSecondsAreThoseAtWork(t *testing.T) {
	t.Parallel()
	const while = 700 * time.Millisecond
	w := newWorld(t)
	a := w.create(nil)
	a.send("one", a.script(rig.Bash("sleep 0.2"), rig.Say("one")))
	a.rests()

	// Hibernated, it does not work.
	must(t, a.Command(w.ctx, "hibernate", nil))
	a.phase(dormouse.PhaseHibernated)
	must(t, sleep.For(w.ctx, while))
	a.send("two", a.script(rig.Bash("sleep 0.2"), rig.Say("two")))
	a.rests()

	// Two threads at once work as long as one.
	beside := a.opens("beside")
	wait, open := w.gate()
	a.send("primary", a.script(rig.Bash(a.marked(wait)), rig.Say("primary")))
	must(t, a.PromptOn(w.ctx, beside, "beside", a.script(rig.Bash(a.marked(wait)), rig.Say("beside"))))
	a.begun(2)
	must(t, sleep.For(w.ctx, while))
	open()
	a.rests()
	log, got := a.log(), a.active()
	// What a server that lost its lease was at last does not count.
	outranked := slices.ContainsFunc(log, func(e dormouse.Event) bool { return e.Type == dormouse.SessionStatusRescheduled })
	if want := worked(log); got > want || got < want && !outranked {
		t.Errorf("%s were active, and the log says %s", got, want)
	}
	if idle := log[len(log)-1].Time.Sub(log[0].Time) - got; idle < while {
		t.Errorf("of its life it rested %s, though it was hibernated for %s", idle, while)
	}

	// While the server is down, no thread works.
	wait, open = w.gate()
	a.send("killed", a.script(rig.Bash(a.marked(wait)), rig.Say("killed")))
	a.begun(3)
	w.kill(func() { must(t, sleep.For(w.ctx, while)) })
	a.sees(dormouse.SessionStatusRescheduled, 1)
	open()
	a.rests()
	if most, now := worked(a.log())-while, a.active(); now > most || now < got {
		t.Errorf("%s were active, want at least %s and without the %s that the server was down at most %s", now, got, while, most)
	}
}
