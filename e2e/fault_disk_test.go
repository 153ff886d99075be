//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// unreadable makes a session whose log cannot be read where it holds the mark, on
// pages that hold nothing of other sessions.
func (w *world) unreadable() (a *actor, fault powercut.Fault) {
	w.t.Helper()
	const mark = "here the disk is broken"
	a = w.create(cold)
	a.send("large", a.script(rig.Say("kept"))+strings.Repeat(" filler", 1500)+strings.Repeat(mark, 800))
	a.rests()
	return a, failing(syscall.EIO, func(r powercut.Request) bool {
		return r.Op == powercut.Read && bytes.Contains(r.Data, []byte(mark))
	})
}

func TestB05UnreadablePageFailsThatSessionAndNoOther(t *testing.T) {
	t.Parallel()
	w, disk := newFaulty(t, func(s *rig.Server) { s.Flags = append(s.Flags, "--drop-after", "20ms") })
	a, fault := w.unreadable()
	other := w.create(cold)
	other.send("one", other.script(rig.Say("one")))
	other.rests()
	w.until("the session is not in memory", func() bool { return w.loaded() == "0" })
	disk.Inject(fault)
	other.send("two", other.script(rig.Say("two")))
	other.rests()
	for range 2 {
		refused(t, a.Command(w.ctx, "prompts", options{"content": "nobody can know", "id": "later"}), http.StatusConflict, "damaged")
		_, err := w.Once(w.ctx, http.MethodGet, a.Path("/events?all=true"), nil, nil)
		refused(t, err, http.StatusConflict, "damaged")
	}
	other.send("three", other.script(rig.Say("three")))
	other.rests()
	disk.Inject(nil)
	a.insist("later", a.script(rig.Say("now it can be read"))) // it may hear of the failure a little longer
	a.rests()
	if w.Lives() != 1 {
		t.Errorf("it took %d servers, want one", w.Lives())
	}
}

func TestB05UnreadableLogAtBootIsSaidAndNothingIsMadeUp(t *testing.T) {
	t.Parallel()
	w, disk := newFaulty(t)
	a, fault := w.unreadable()
	before := a.log()
	w.Hold()
	w.live().Kill()
	disk.Inject(fault)
	w.doesNotStart("input/output error")
	disk.Inject(nil)
	w.Resume()
	if diff := cmp.Diff(before, a.log()); diff != "" {
		t.Errorf("the log changed: %s", diff)
	}
	a.send("later", a.script(rig.Say("now it can be read")))
	a.rests()
}

// TestB06: after a sync that failed, a second one may say that all is well
// although nothing is. So the fault strikes once, and that must be enough.
func TestB06FailedSyncIsNotTriedAgainAndBelieved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		op   powercut.Op
		hit  func(powercut.Request) bool
	}{
		{"sync of the log", powercut.Sync, inLog},
		{"write of the log", powercut.Write, inLog},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, disk := newFaulty(t)
			a := w.create(cold)
			a.send("before", a.script(rig.Say("before")))
			a.rests()
			disk.Inject(once(failing(syscall.EIO, func(r powercut.Request) bool { return r.Op == c.op && c.hit(r) })))
			w.ends("the disk failed", func() {
				err := a.Command(w.ctx, "prompts", options{"content": "who knows", "id": "lost"})
				if !rig.Again(err) {
					t.Errorf("the prompt was answered with %v", err)
				}
			})
			a.send("lost", "who knows")
			a.rests()
			a.send("after", a.script(rig.Say("after")))
			a.rests()
			w.outage(disk, idle(), nil)
			a.has("before", "lost", "after")
		})
	}
}

// TestB06: a checkpoint gives the database what its log holds, and the sync that
// should make it durable fails. No later one may be believed, and the log be emptied.
func TestB06FailedSyncOfTheDatabaseKeepsTheLog(t *testing.T) {
	t.Parallel()
	w, disk := newFaulty(t)
	sessions := make([]*actor, 20) // many, because a model is sent all that was said
	for n := range sessions {
		sessions[n] = w.create(cold)
	}
	sent := make(map[*actor][]string)
	disk.Inject(once(failing(syscall.EIO, func(r powercut.Request) bool { return r.Op == powercut.Sync && inDatabase(r) })))
	w.ends("the disk failed", func() {
		body, life := strings.Repeat("much to move ", 4500), w.live()
		for n := 0; ; n++ {
			select {
			case <-life.Done():
				return
			default:
				a := sessions[n%len(sessions)]
				a.insist(fmt.Sprint(n), a.script(rig.Say("kept"))+body)
				sent[a] = append(sent[a], fmt.Sprint(n))
			}
		}
	})
	sessions[0].send("after", sessions[0].script(rig.Say("after")))
	sent[sessions[0]] = append(sent[sessions[0]], "after")
	w.outage(disk, idle(), nil)
	for _, a := range sessions {
		a.has(sent[a]...)
	}
}

// has fails unless the session's log has the prompts, in their order.
func (a *actor) has(names ...string) {
	a.w.t.Helper()
	var got, want []dormouse.EventID
	for _, e := range only(a.log(), dormouse.PromptQueued) {
		got = append(got, e.ID)
	}
	for _, name := range names {
		want = append(want, dormouse.PromptID(a.ID, name))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		a.w.t.Errorf("the prompts in the log are not those that were acknowledged: %s", diff)
	}
}

func TestB06FailedSyncOfABlobRefusesWhatNeedsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		op   powercut.Op
	}{{"file", powercut.Sync}, {"directory", powercut.SyncDir}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, disk := newFaulty(t)
			a := w.create(cold)
			disk.Inject(once(failing(syscall.EIO, func(r powercut.Request) bool { return r.Op == c.op && inBlobs(r) })))
			body := a.script(rig.Say("the second time it was kept")) + large
			refused(t, a.Command(w.ctx, "prompts", options{"content": body, "id": "large"}), http.StatusInternalServerError, "internal")
			if n := len(only(a.log(), dormouse.PromptQueued)); n != 0 {
				t.Errorf("%d prompts are queued, want none", n)
			}
			a.send("large", body)
			a.rests()
			w.outage(disk, idle(), nil)
			a.has("large")
			for _, e := range only(a.log(), dormouse.PromptQueued) {
				if !bytes.Contains(e.Payload, []byte(large)) {
					t.Errorf("of the prompt there is left: %.200s", e.Payload)
				}
			}
		})
	}
}

func TestB07HalfDoneAndInterruptedCallsAreFinished(t *testing.T) {
	t.Parallel()
	turns := func(n int) func() bool {
		var mu sync.Mutex
		calls := 0
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			calls++
			return calls%n == 0
		}
	}
	for _, c := range []struct {
		name  string
		lives int // how many servers it may take; 0 is any number
		fault func() powercut.Fault
	}{
		{"short writes", 1, func() powercut.Fault {
			return func(r powercut.Request) error {
				if r.Op == powercut.Write {
					return powercut.Short((len(r.Data) + 1) / 2)
				}
				return nil
			}
		}},
		{"interrupted", 1, func() powercut.Fault {
			now := turns(2)
			return failing(syscall.EINTR, func(r powercut.Request) bool {
				return (r.Op == powercut.Write || r.Op == powercut.Read) && now()
			})
		}},
		// No disk should say so. A server that cannot go on ends, and the next
		// one can.
		{"not now", 0, func() powercut.Fault {
			now := turns(97)
			return failing(syscall.EAGAIN, func(r powercut.Request) bool { return r.Op == powercut.Write && now() })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, disk := newFaulty(t)
			a := w.create(nil)
			disk.Inject(c.fault())
			a.insist("one", a.script(rig.Bash(a.marked("true")), rig.Say("one"))+large)
			for n := range 5 {
				a.insist(string(rune('a'+n)), a.script(rig.Bash(a.marked("echo "+string(rune('a'+n))+" >> lines")), rig.Say("next")))
			}
			a.rests()
			disk.Inject(nil)
			if n := w.Lives(); c.lives > 0 && n != c.lives {
				t.Errorf("it took %d servers, want %d", n, c.lives)
			}
		})
	}
}

// insist sends a prompt until it is accepted, whatever goes wrong.
func (a *actor) insist(clientID, content string) {
	a.w.t.Helper()
	for {
		err := a.Prompt(a.w.ctx, clientID, content)
		if r := rig.Refused(err); r == nil || r.Status < http.StatusInternalServerError && r.Code != "damaged" {
			must(a.w.t, err)
			return
		}
		must(a.w.t, sleep.For(a.w.ctx, 10*time.Millisecond))
	}
}

func TestB14StalledSyncHoldsUpAnswersAndLosesNothing(t *testing.T) {
	t.Parallel()
	w, disk := newFaulty(t)
	a := w.create(nil)
	wait, open := w.gate()
	a.send("at work", a.script(rig.Bash(a.marked(wait)), rig.Say("it was only delayed")))
	a.begun(1)
	begin := time.Now()
	over := time.After(stalls)
	ended := make(chan struct{})
	disk.Inject(func(r powercut.Request) error {
		if r.Op == powercut.Sync && inLog(r) {
			<-ended
		}
		return nil
	})
	open() // what the command brings cannot be written yet
	answered := make(chan error, 1)
	go func() { answered <- a.Prompt(w.ctx, "patient", a.script(rig.Say("patient"))) }()
	hasty, leave := context.WithTimeout(w.ctx, stalls/3)
	defer leave()
	if err := a.Prompt(hasty, "hasty", a.script(rig.Say("hasty"))); err == nil {
		t.Error("a prompt was accepted by a disk that hangs")
	}
	if _, err := a.Show(w.ctx); err != nil { // reading needs no sync
		t.Error(err)
	}
	select {
	case err := <-answered:
		t.Errorf("a prompt was answered by a disk that hangs: %v", err)
	case <-over:
	}
	close(ended)
	must(t, <-answered)
	if d := time.Since(begin); d < stalls {
		t.Errorf("it took %s", d)
	}
	disk.Inject(nil)
	a.send("hasty", a.script(rig.Say("hasty"))) // the same, once more
	a.rests()
	if w.Lives() != 1 {
		t.Errorf("it took %d servers, want one", w.Lives())
	}
}

func TestB15ReadOnlyDiskTakesNothingAndIsSaid(t *testing.T) {
	t.Parallel()
	w, disk := newFaulty(t)
	a := w.create(cold)
	a.send("before", a.script(rig.Say("before")))
	a.rests()
	before := a.log()
	w.Hold()
	life := w.live()
	disk.Inject(failing(syscall.EROFS, func(r powercut.Request) bool { return r.Op.Changes() }))
	err := a.Command(w.ctx, "prompts", options{"content": "who knows", "id": "lost"})
	if err == nil {
		t.Error("a prompt was accepted by a disk that is read-only")
	}
	t.Logf("the prompt was answered with %v", err)
	select {
	case <-life.Done():
		w.doesNotStart("read-only")
	case <-time.After(2 * time.Second):
		t.Error("the server goes on")
	}
	disk.Inject(nil)
	w.Resume()
	if diff := cmp.Diff(before, a.log()); diff != "" && !strings.Contains(diff, "who knows") {
		t.Errorf("the log changed: %s", diff)
	}
	a.send("lost", "who knows")
	a.send("after", a.script(rig.Say("after")))
	a.rests()
}

// ends waits for the server to end by itself, with an error that says why.
func (w *world) ends(why string, cause func()) {
	w.t.Helper()
	life := w.live()
	cause()
	select {
	case <-life.Done():
	case <-w.ctx.Done():
		w.t.Fatalf("waiting for the server to end: %v", context.Cause(w.ctx))
	}
	if life.Err() == nil || life.Killed() || !strings.Contains(w.Tail(), why) {
		w.t.Errorf("the server ended with %v, want a status of its own and %q in what it said", life.Err(), why)
	}
}

// doesNotStart has a server refuse the data directory, and say why.
func (w *world) doesNotStart(why string) {
	w.t.Helper()
	life, err := w.Start(w.ctx, rig.Arm{}, "")
	if err == nil {
		life.Kill()
		err = errors.New("nothing was wrong")
	}
	if !strings.Contains(err.Error(), "exit status") || !strings.Contains(err.Error(), why) {
		w.t.Errorf("starting says %v, want an exit status and %q", err, why)
	}
}

// loaded counts the sessions that the server has in memory.
func (w *world) loaded() string {
	w.t.Helper()
	var text string
	must(w.t, w.Get(w.ctx, "/metrics", &text))
	_, value, _ := strings.Cut(text, "\ndormouse_sessions_loaded ")
	value, _, _ = strings.Cut(value, "\n")
	return value
}
