//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// The cases B01 to B04 where the sandboxes are gVisor's and their volumes are on the disk
// that is full. Commands leave their marks in the workspace there.

// marksOnce is a command that takes long enough for the disk to be filled meanwhile.
const (
	marksOnce      = "sleep 3; echo ran >> effects"
	marksOnceTakes = 4 * time.Second
)

// ranOnce fails unless marksOnce ran one time, in the turn that it was asked for in, and
// the agent was told so.
func (a *actor) ranOnce(l *lined) {
	a.w.t.Helper()
	if got := l.run("cat effects"); got != "ran\n" {
		a.w.t.Errorf("the command left %q", got)
	}
	log := a.log()
	if n := place(log, dormouse.SessionError); n >= 0 {
		a.w.t.Errorf("the full disk is told as an error:\n%s", types(log))
	}
	result := only(log, dormouse.AgentToolResult)
	if len(result) != 1 || rig.Decode[dormouse.ToolResult](result[0]).IsError {
		a.w.t.Errorf("the command went well, and the agent was told %s", types(result))
	}
}

// atWork makes a session in which marksOnce runs.
func (w *world) atWork() (*actor, *lined) {
	w.t.Helper()
	a := w.createUnseen(nil)
	l := &lined{Session: a.Session, w: w, snapshots: make(map[dormouse.SnapshotID]string)}
	l.run("true")
	a.send("at work", a.script(rig.Bash(marksOnce), rig.Say("it was only delayed")))
	a.sees(dormouse.AgentToolUse, 1)
	return a, l
}

func TestB01OnVolumesNoSpaceForTheLogRefusesThePromptAndRecovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, loopDisk(t, "240M", "--spares", "0"))
	a, l := w.atWork()
	free := w.fill()
	var err error
	for n := 0; err == nil; n++ {
		err = a.Prompt(w.ctx, fmt.Sprint(n), a.script(rig.Say("it fitted")))
	}
	refused(t, errors.Unwrap(err), http.StatusInsufficientStorage, "full")
	for range 3 {
		refused(t, a.Command(w.ctx, "prompts", options{"content": "no space", "id": "refused"}), http.StatusInsufficientStorage, "full")
	}
	if _, err := a.Rows(w.ctx); err != nil {
		t.Errorf("lists cannot be read: %v", err)
	}
	must(t, sleep.For(w.ctx, marksOnceTakes)) // it ends while there is no space for its result
	free()
	a.sees(dormouse.TurnEnded, 1)
	a.send("refused", a.script(rig.Say("now there is space")))
	a.rests()
	a.ranOnce(l)
	if log := a.log(); len(only(log, dormouse.AttemptStarted)) != len(only(log, dormouse.TurnStarted)) || w.Lives() != 1 {
		t.Errorf("the full disk cost an attempt or a server:\n%s", types(log))
	}
}

// A server starts on a disk without a byte left: what is held back for deletions serves
// for that, too.
func TestB02OnVolumesNoSpaceDuringRecoveryBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, loopDisk(t, "240M", "--spares", "0"))
	a, l := w.atWork()
	free := func() {}
	w.kill(func() { free = w.fill() })
	if shown := a.show(); shown.Phase != dormouse.PhaseRunning {
		t.Errorf("session is %s, want running", shown.Phase)
	}
	must(t, sleep.For(w.ctx, marksOnceTakes))
	free()
	a.rests()
	a.ranOnce(l)
	if n := len(only(a.log(), dormouse.AttemptStarted)); n != 2 {
		t.Errorf("%d attempts, want the first and the one after the kill:\n%s", n, types(a.log()))
	}
}

// What does not fit leaves the snapshot before it, and the files, as they are.
func TestB03OnVolumesNoSpaceForASnapshotTakesNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, loopDisk(t, "240M", "--snapshots", "off", "--spares", "0"))
	l := w.onVolumes(nil)
	l.run("echo first > file")
	must(t, l.take("first"))
	l.run("echo second > file; head -c 24000000 /dev/urandom > big")
	sum := l.run("sha256sum big")
	free := w.fill()
	w.drain()
	refused(t, l.take("second"), http.StatusInsufficientStorage, "full")
	l.has("second", "without space for a snapshot")
	free()
	w.until("there is space for a snapshot", func() bool { return l.take("second") == nil })
	for id, what := range l.snapshots {
		must(t, l.Repeat(w.ctx, http.MethodPost, l.Path("/restore"), map[string]any{"snapshot": id}, nil))
		l.has(what, "gone back")
		if what == "second" && l.run("sha256sum big") != sum {
			t.Error("what was in the snapshot is something else")
		}
	}
	if len(l.snapshots) != 2 || w.Lives() != 1 {
		t.Errorf("%d snapshots were taken, by %d servers", len(l.snapshots), w.Lives())
	}
}

func TestB04OnVolumesNoInodesRefusesWhatNeedsAFileAndRecovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, loopDisk(t, "240M", "--spares", "0"))
	awake, needs := w.onVolumes(nil), w.createUnseen(cold)
	free := w.fillInodes()
	awake.run("echo kept > file") // which is on its own volume
	needs.send("box", needs.script(rig.Bash("echo ran >> effects"), rig.Say("there was no space for a sandbox at first")))
	needs.sees(dormouse.SandboxWarming, 1)
	must(t, sleep.For(w.ctx, 2*time.Second)) // as long as that is tried again
	free()
	needs.rests()
	if n := len(only(needs.Follower.Seen(), dormouse.SessionStatusRescheduled)); n > 0 {
		t.Errorf("%d attempts were lost meanwhile", n)
	}
	l := &lined{Session: needs.Session, w: w}
	if got := l.run("cat effects"); got != "ran\n" || w.Lives() != 1 {
		t.Errorf("the command left %q, and it took %d servers", got, w.Lives())
	}
	awake.sleeps()
	if got := awake.run("cat file"); !strings.HasPrefix(got, "kept") {
		t.Errorf("the file has %q", got)
	}
}
