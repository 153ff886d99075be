//go:build linux

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/harness/wire"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// takenOver has one server lose a session, at work on a command, to the other
// one. It comes back while the other still works on it if early, and otherwise
// afterwards.
func (f *fleet) takenOver(lose, back func(i int), early bool) {
	f.t.Helper()
	a, open := f.busy()
	was := f.owner(a, -1)
	lose(was)
	f.owner(a, was)
	if n := f.loadedOn(was); n != "0" && !f.life(was).Frozen() {
		f.t.Errorf("another server has the session, and the one that lost it still holds %s", n)
	}
	if early {
		back(was)
		open()
	} else {
		open()
		a.sees(dormouse.TurnEnded, 1)
		back(was)
	}
	f.until("the server has a lease again", func() bool { return f.ready(was) })
	f.at(was, a, "after", a.script(rig.Bash(a.marked("true")), rig.Say("after")))
	a.within(settlesWithin)
	if begun, ended := a.effects("begin"), a.effects("end"); begun != 2 || ended != 2 {
		f.t.Errorf("two commands began %d times and ended %d times", begun, ended)
	}
	if said := only(a.log(), dormouse.AgentMessage); len(said) != 2 || words(said[0]) != "it went on" {
		f.t.Errorf("said were %s", types(said))
	}
}

// TestB38: a server that cannot reach the database stops by itself before
// another one acts, and is one of them again when it can.
func TestB38ServerCutOffFromTheDatabaseIsReplacedAndReturns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fall  func(*wire.Wire)
		early bool
	}{
		{"silently", (*wire.Wire).Hold, false},
		{"silently and back in the middle", (*wire.Wire).Hold, true},
		{"refused", (*wire.Wire).Refuse, false},
		{"refused and back in the middle", (*wire.Wire).Refuse, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pg, name := sharedDatabase(t)
			f := newFleet(t, 2, pg, name)
			f.takenOver(
				func(i int) { c.fall(f.wires[i]) },
				func(i int) { must(t, f.wires[i].Heal()) }, c.early)
		})
	}
}

// TestB39: a server that is frozen for longer than its lease is replaced, and its
// process is ended if it still holds its sockets. Nothing it does after it continues
// may count. Its next life, which may take the session as well as any other server,
// starts only after another server has it.
func TestB39FrozenServerIsReplacedAndDoesNothingWhenItGoesOn(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"afterwards": false, "in the middle": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg, name := sharedDatabase(t)
			f := newFleet(t, 2, pg, name)
			f.takenOver(
				func(i int) {
					f.keepers[i].Between = func(int) { _ = sleep.For(f.ctx, 3*lease) }
					f.life(i).Signal(syscall.SIGSTOP)
				},
				func(i int) { f.life(i).Signal(syscall.SIGCONT) }, early)
		})
	}
}

// TestB14: a database that hangs for longer than every lease. All servers
// stop by themselves, and all come back.
func TestB14StalledDatabaseStopsEveryServerAndLosesNothing(t *testing.T) {
	t.Parallel()
	pg, name := sharedDatabase(t)
	f := newFleet(t, 2, pg, name)
	a, open := f.busy()
	for _, w := range f.wires {
		w.Hold()
	}
	must(t, sleep.For(f.ctx, max(stalls, 2*lease)))
	for i := range f.keepers {
		if f.ready(i) {
			t.Errorf("server %d is ready although its lease is over", i)
		}
	}
	open()
	f.until("the command has ended", func() bool { return a.effects("end") == 1 })
	for _, w := range f.wires {
		must(t, w.Heal())
	}
	a.within(settlesWithin)
	f.at(0, a, "zero", a.script(rig.Say("zero")))
	f.at(1, a, "one", a.script(rig.Say("one")))
	a.within(settlesWithin)
}

// TestB28: a server that is never told of changes looks for itself.
func TestB28LostNotificationIsMadeUpForByLooking(t *testing.T) {
	t.Parallel()
	pg, name := sharedDatabase(t)
	f := newFleet(t, 2, pg, name, func(_ int, s *rig.Server) { s.Flags = append(s.Flags, "--drop-after", "50ms") })
	a := f.create(cold)
	deaf := 0
	f.wires[1].Watch(func(p wire.Piece) bool {
		if p.Back || !bytes.Contains(p.Data, []byte("LISTEN ")) {
			return false
		}
		deaf++
		return true
	})
	f.wires[1].Cut() // whatever listens now
	f.until("the server no longer listens", func() bool { return deaf > 1 })
	c := f.keepers[1].Client()
	defer c.Close()
	there := a.elsewhere(c)
	defer there.Follower.Close()
	const soon = 2 * time.Second
	for n := range 4 {
		id := string(rune('a' + n))
		f.at(0, a, id, a.script(rig.Say(id)))
		begin := time.Now()
		a.sees(dormouse.TurnEnded, n+1)
		last := a.log()
		must(t, there.Follower.Reaches(f.ctx, last[len(last)-1].Seq))
		if d := time.Since(begin); d > soon {
			t.Errorf("what server 0 wrote was seen at server 1 after %s, want at most %s", d, soon)
		}
		f.until("nobody has the session", func() bool { owners, err := f.direct.Owners(f.ctx); must(t, err); return owners[a.ID] == "" })
	}
}

// TestB30: servers whose own clocks are a day apart go by the database's.
func TestB30ServersWhoseClocksAreApartAgreeOnTheTime(t *testing.T) {
	t.Parallel()
	pg, name := sharedDatabase(t)
	dir := t.TempDir()
	f := newFleet(t, 2, pg, name, func(i int, s *rig.Server) {
		path := filepath.Join(dir, []string{"behind", "ahead"}[i])
		must(t, os.WriteFile(path, []byte([]string{"-12h", "12h"}[i]), 0o600))
		s.Binary, s.Env = crashing(t), append(s.Env, "DORMOUSE_CLOCK="+path)
	})
	a := f.fails()
	a.within(settlesWithin)
	for n := range 4 { // from one server to the other and back
		was := f.owner(a, -1)
		f.life(was).Kill()
		id := string(rune('a' + n))
		f.at(1-was, a, id, a.script(rig.Step{"text": id, "error": 529, "times": 1, "retry_after_ms": 500}))
		a.within(settlesWithin)
		_, err := f.keepers[was].Live(f.ctx)
		must(t, err)
	}
	last := time.Time{}
	for _, e := range a.log() {
		if e.Time.Before(last.Add(-f.slack)) || time.Since(e.Time).Abs() > 80*time.Second {
			t.Errorf("event %d is of %s, and the one before of %s", e.Seq, e.Time, last)
		}
		last = e.Time
	}
}

// TestB40: one version after the other is not to be had yet, so the server is
// replaced by itself, again and again, while turns run.
func TestB40RollingRestartCostsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	busy, chatty := w.create(nil), w.create(cold)
	wait, open := w.gate()
	busy.send("busy", busy.script(rig.Bash(busy.marked(wait)), rig.Say("through all of it")))
	busy.begun(1)
	for n := range 5 {
		chatty.send(string(rune('a'+n)), chatty.script(rig.Step{"text": "a slow and stately sentence", "chunks": 9, "chunk_delay_ms": 40}))
		w.until("somebody has seen a fragment", func() bool { return len(chatty.Follower.Texts()) > n })
		w.after(nil, func(l *rig.Life) {
			if err := l.Stop(); err != nil {
				t.Errorf("the server did not stop well: %v", err)
			}
		})
		chatty.rests()
	}
	open()
	busy.rests()
	if log := busy.log(); len(only(log, dormouse.OpUnknown)) != 0 || place(log, dormouse.SessionError) >= 0 || len(only(log, dormouse.SessionStatusRescheduled)) != 0 {
		t.Errorf("the restarts cost something:\n%s", types(log))
	}
	if n := busy.effects("begin"); n != 1 || w.Lives() != 6 {
		t.Errorf("the command began %d times under %d servers", n, w.Lives())
	}
}

// TestB40: servers are replaced one after the other while turns run.
func TestB40RollingRestartOfSeveralServersCostsNoAttempt(t *testing.T) {
	t.Parallel()
	pg, name := sharedDatabase(t)
	f := newFleet(t, 2, pg, name)
	a, open := f.busy()
	b, openB := f.busy()
	for range 2 {
		for i := range f.keepers {
			must(t, f.keepers[i].Halt(f.ctx))
			f.keepers[i].Resume()
			f.life(i)
		}
	}
	open()
	openB()
	for _, a := range []*actor{a, b} {
		a.within(settlesWithin)
		if log := a.log(); place(log, dormouse.OpUnknown) >= 0 || place(log, dormouse.SessionError) >= 0 || place(log, dormouse.SessionStatusRescheduled) >= 0 {
			t.Errorf("the restarts cost something:\n%s", types(log))
		}
	}
}
