//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

func TestB01NoSpaceForTheLogRefusesThePromptAndRecovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallDisk(t, "size=8m"))
	a := w.create(nil)
	wait, open := w.gate()
	a.send("at work", a.script(rig.Bash(a.marked(wait)), rig.Say("it was only delayed")))
	a.begun(1)
	free := w.fill()

	// A commit that still fits is accepted, and is then in the log like any other.
	var err error
	for n := 0; err == nil; n++ {
		err = a.Prompt(w.ctx, fmt.Sprint(n), a.script(rig.Say("it fitted")))
	}
	refused(t, errors.Unwrap(err), http.StatusInsufficientStorage, "full")
	before := a.log() // reading needs no space
	for range 3 {
		refused(t, a.Command(w.ctx, "prompts", options{"content": "no space", "id": "refused"}), http.StatusInsufficientStorage, "full")
		refused(t, a.Command(w.ctx, "interrupt", nil), http.StatusInsufficientStorage, "full")
	}
	if _, err := w.Once(w.ctx, http.MethodPost, "/api/sessions", options{"title": "no space"}, nil); rig.Refused(err) == nil {
		t.Errorf("a session was made without space: %v", err)
	}
	if diff := cmp.Diff(before, a.log()); diff != "" {
		t.Errorf("what was refused left its mark: %s", diff)
	}
	if _, err := a.Rows(w.ctx); err != nil {
		t.Errorf("lists cannot be read: %v", err)
	}

	open() // what the command brings has nowhere to go yet
	w.until("the command has ended", func() bool { return a.effects("end") == 1 })
	free()
	a.sees(dormouse.TurnEnded, 1)
	a.send("refused", a.script(rig.Say("now there is space")))
	a.rests()
	log := a.log()
	if n := len(only(log, dormouse.AttemptStarted)); n != len(only(log, dormouse.TurnStarted)) || place(log, dormouse.SessionError) >= 0 {
		t.Errorf("the full disk cost an attempt:\n%s", types(log))
	}
	if result := only(log, dormouse.AgentToolResult); len(result) != 1 || rig.Decode[dormouse.ToolResult](result[0]).IsError {
		t.Errorf("the command went well, and the agent was told %s", types(result))
	}
	if w.Lives() != 1 {
		t.Errorf("it took %d servers, want one", w.Lives())
	}
}

func TestB02NoSpaceDuringRecoveryBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallDisk(t, "size=8m"))
	a := w.create(nil)
	wait, open := w.gate()
	a.send("at work", a.script(rig.Bash(a.marked(wait)), rig.Say("it was only delayed")))
	a.begun(1)
	free := func() {}
	w.kill(func() { free = w.fill() })
	if shown := a.show(); shown.Phase != dormouse.PhaseRunning {
		t.Errorf("session is %s, want running", shown.Phase)
	}
	before := a.log()
	refused(t, a.Command(w.ctx, "prompts", options{"content": "no space"}), http.StatusInsufficientStorage, "full")
	if diff := cmp.Diff(before, a.log()); diff != "" {
		t.Error(diff)
	}
	free()
	a.sees(dormouse.SessionStatusRescheduled, 1)
	w.until("clients on this machine find the server again", func() bool {
		out, err := w.command("session", "list").CombinedOutput()
		return err == nil && strings.Contains(string(out), string(a.ID))
	})
	open()
	a.rests()
	if n := len(only(a.log(), dormouse.AttemptStarted)); n != 2 {
		t.Errorf("%d attempts, want the first and the one after the kill:\n%s", n, types(a.log()))
	}
}

func TestB03NoSpaceForBlobsHoldsUpOnlyWhatIsLarge(t *testing.T) {
	t.Parallel()
	w, disk := newFaulty(t)
	a := w.create(nil)
	a.phase(dormouse.PhaseReady)
	disk.Inject(failing(syscall.ENOSPC, func(r powercut.Request) bool { return r.Op.Changes() && inBlobs(r) }))
	before := a.log()
	for range 3 {
		refused(t, a.Command(w.ctx, "prompts", options{"content": large, "id": "large"}), http.StatusInsufficientStorage, "full")
	}
	if diff := cmp.Diff(before, a.log()); diff != "" {
		t.Errorf("what was refused left its mark: %s", diff)
	}
	a.send("small", a.script(rig.Say("this needs no blob")))
	a.rests()
	a.send("waits", a.script(rig.Bash(a.marked("yes | head -c 100000")), rig.Say("it was only delayed")))
	w.until("the command has ended", func() bool { return a.effects("end") == 1 }) // its output has nowhere to go yet
	disk.Inject(nil)
	a.rests()
	a.send("large", a.script(rig.Say("now there is space"))+large)
	a.rests()
	log := a.log()
	if n := len(only(log, dormouse.AttemptStarted)); n != 3 || place(log, dormouse.SessionError) >= 0 || w.Lives() != 1 {
		t.Errorf("the full disk cost an attempt or a server:\n%s", types(log))
	}
}

func TestB04NoInodesRefusesWhatNeedsAFileAndRecovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallDisk(t, "size=64m,nr_inodes=600"))
	a, needs := w.create(cold), w.create(cold)
	free := w.fillInodes()
	refused(t, a.Command(w.ctx, "prompts", options{"content": large, "id": "large"}), http.StatusInsufficientStorage, "full")
	a.send("small", a.script(rig.Say("this needs no file")))
	a.rests()
	needs.send("box", needs.script(rig.Bash(needs.marked("true")), rig.Say("there was no space for a sandbox at first")))
	needs.sees(dormouse.SessionStatusRescheduled, 1)
	free()
	needs.rests()
	a.send("large", a.script(rig.Say("now there is space"))+large)
	a.rests()
	if n := needs.effects("end"); n != 1 || w.Lives() != 1 {
		t.Errorf("the command ran %d times, and it took %d servers", n, w.Lives())
	}
}

// smallDisk gives the server a file system of its own that is soon full.
func smallDisk(t *testing.T, size string) func(*rig.Server) {
	t.Helper()
	mayMount(t)
	return func(s *rig.Server) {
		must(t, os.MkdirAll(s.Data, 0o700))
		must(t, unix.Mount("tmpfs", s.Data, "tmpfs", 0, size+",mode=700"))
		t.Cleanup(func() { must(t, unix.Unmount(s.Data, unix.MNT_DETACH)) }) // what was killed may be on its way out
	}
}

// fill leaves no space on the server's disk until free is called.
func (w *world) fill() (free func()) {
	w.t.Helper()
	path := filepath.Join(w.Data, "filler")
	f, err := os.Create(path)
	must(w.t, err)
	for size := 64 << 10; size > 0; { // in ever smaller pieces
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatalf("fill the disk: %v", err)
	}
	must(w.t, f.Close())
	return func() { must(w.t, os.Remove(path)) }
}

// fillInodes leaves no space for another file until free is called.
func (w *world) fillInodes() (free func()) {
	w.t.Helper()
	dir := filepath.Join(w.Data, "filler")
	must(w.t, os.Mkdir(dir, 0o700))
	var err error
	for n := 0; err == nil; n++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatalf("fill the disk: %v", err)
	}
	return func() { must(w.t, os.RemoveAll(dir)) }
}
