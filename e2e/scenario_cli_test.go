package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// The story as a person lives it: make a session, send something that takes a
// while, follow it, kill the server, start it again.
func TestKilledServerByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := strings.TrimSpace(w.cli("session", "create", "--title", "by hand"))
	a := w.adopt(dormouse.SessionID(id))
	a.sees(dormouse.SandboxStarted, 1)
	const after = 2
	f := w.follow(id, after)

	counted := filepath.Join(w.witness.Dir, "counted.txt")
	wait, open := w.gate()
	w.cli("session", "send", id, "--id", "count", rig.Script("", rig.Bash(a.marked(wait)+"; echo line >> "+counted), rig.Say("counted")))
	a.begun(1)
	w.kill(nil)
	a.sees(dormouse.SessionStatusRescheduled, 1)
	w.kill(func() { // the command ends while no server is there
		open()
		w.until("the command has ended", func() bool { _, err := os.Stat(counted); return err == nil })
	})
	w.cli("session", "follow", id, "--until-idle")

	b, err := os.ReadFile(counted)
	must(t, err)
	if string(b) != "line\n" {
		t.Errorf("the file holds %q, want exactly one line", b)
	}
	if out := w.cli("session", "show", id); !strings.Contains(out, string(dormouse.PhaseReady)) {
		t.Errorf("the turn has not ended:\n%s", out)
	}

	log := a.log()
	var want []dormouse.Event
	for _, e := range log[after:] {
		if e.Type.Audience() <= dormouse.ForPeople {
			want = append(want, e)
		}
	}
	w.cli("session", "terminate", id) // which ends the follower
	got := f.all(t)
	if diff := cmp.Diff(want, got[:min(len(want), len(got))]); diff != "" {
		t.Errorf("followed over the kills, the log shows otherwise: %s", diff)
	}
	for i := range got[1:] {
		if got[i+1].Seq <= got[i].Seq {
			t.Errorf("event %d came after event %d", got[i+1].Seq, got[i].Seq)
		}
	}
	if last := got[len(got)-1]; last.Type != dormouse.SessionStatusTerminated {
		t.Errorf("the follower ended with %s", last.Type)
	}
}

func TestSixKillsByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := strings.TrimSpace(w.cli("session", "create"))
	a := w.adopt(dormouse.SessionID(id))
	never, _ := w.gate()
	w.cli("session", "send", id, rig.Script("", rig.Bash(never)))
	a.sees(dormouse.AgentToolUse, 1)
	for n := range 6 {
		a.sees(dormouse.AttemptStarted, n+1)
		w.kill(nil)
	}
	a.phase(dormouse.PhaseError)
	events := w.cli("session", "events", id)
	if n := strings.Count(events, string(dormouse.SessionStatusRescheduled)); n != 5 {
		t.Errorf("%d reschedules are shown, want 5", n)
	}
	if !strings.Contains(events, string(dormouse.SessionError)) || !strings.Contains(w.cli("session", "show", id), string(dormouse.PhaseError)) {
		t.Errorf("the error is not shown:\n%s", events)
	}
	if out := w.cli("session", "send", id, "--follow", "and now?"); !strings.Contains(out, "You said: and now?") {
		t.Errorf("the next prompt brought\n%s", out)
	}
}

// What the tour of the README shows can be typed.
func TestReadmeSpeaksTheCommandsThereAre(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("..", "README.md"))
	must(t, err)
	n := 0
	for line := range strings.Lines(string(b)) {
		_, rest, ok := strings.Cut(line, "./bin/dormouse ")
		if !ok || !strings.HasPrefix(strings.TrimLeft(line, "S=A$("), "./bin/dormouse") {
			continue
		}
		n++
		// Help, asked for last, is only given if the words before it are known.
		script := "set -- " + strings.TrimSuffix(strings.TrimSpace(rest), ")") + `; exec "$0" "$@" --help`
		out, err := exec.CommandContext(t.Context(), "/bin/bash", "-c", script, built.Server).CombinedOutput()
		if err != nil {
			t.Errorf("%s%v\n%s", line, err, out)
		}
	}
	if n < 10 {
		t.Errorf("only %d commands were found", n)
	}
}

func TestRebuildFindsNothingToMend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []*actor
	for range 3 {
		a := w.create(nil)
		a.send("one", a.script(rig.Bash(a.marked("sleep 0.1")), rig.Say("one")))
		a.send("two", a.script(rig.Say("two")))
		all = append(all, a)
	}
	all[0].begun(1)
	w.kill(func() {
		if out := w.cli("store", "rebuild", "--check"); out != "rebuild: sessions=3 changed=0\n" {
			t.Errorf("after a kill, rebuild says %q", out)
		}
	})
	for _, a := range all {
		a.rests()
	}
	w.kill(func() {
		if out := w.cli("store", "rebuild", "--check"); out != "rebuild: sessions=3 changed=0\n" {
			t.Errorf("at rest, rebuild says %q", out)
		}
	})
}

// followed is a follower that a person has started in a terminal.
type followed struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu     sync.Mutex
	events []dormouse.Event // guarded by mu
	errs   []error          // guarded by mu
}

func (w *world) follow(id string, after int) *followed {
	w.t.Helper()
	f := &followed{cmd: w.command("session", "follow", id, "--json", "--after", strconv.Itoa(after)), done: make(chan struct{})}
	out, err := f.cmd.StdoutPipe()
	must(w.t, err)
	must(w.t, f.cmd.Start())
	go func() {
		defer close(f.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var e dormouse.Event
			err := json.Unmarshal(lines.Bytes(), &e)
			f.mu.Lock()
			f.events = append(f.events, e)
			if err != nil {
				f.errs = append(f.errs, fmt.Errorf("%q: %w", lines.Text(), err))
			}
			f.mu.Unlock()
		}
	}()
	w.t.Cleanup(func() {
		_ = f.cmd.Process.Kill() // it may have ended
		<-f.done
		_ = f.cmd.Wait()
	})
	return f
}

// all waits for the follower's end and returns what it showed.
func (f *followed) all(t *testing.T) []dormouse.Event {
	t.Helper()
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.errs {
		t.Error(err)
	}
	return f.events
}
