//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

func inDatabase(r powercut.Request) bool { return r.Path == "dormouse.db" }

// TestB08: the power fails while a commit is on its way, and the end of the log
// is torn at every sector. What was acknowledged before stands, and the commit
// is there as a whole or not at all.
func TestB08TornEndOfTheLogIsNoCommit(t *testing.T) {
	t.Parallel()
	for _, torn := range []int{0, 512, 2048, 3584, powercut.PageSize} {
		t.Run(fmt.Sprint(torn), func(t *testing.T) {
			t.Parallel()
			w, disk := newFaulty(t)
			a := w.create(cold)
			a.send("before", a.script(rig.Say("before")))
			a.rests()
			s := newStall(func(r powercut.Request) bool { return r.Op == powercut.Sync && inLog(r) })
			disk.Inject(s.fault)
			var answered error
			w.meanwhile(func() {
				answered = a.Command(w.ctx, "prompts", options{"content": a.script(rig.Say("torn")), "id": "torn"})
			}, func() {
				w.outage(disk, s, func(u powercut.Unsynced) int {
					if u.Last {
						return torn
					}
					return powercut.PageSize
				})
			})
			if !rig.Again(answered) {
				t.Errorf("the prompt was answered with %v", answered)
			}
			a.send("torn", a.script(rig.Say("torn")))
			a.rests()
			if n := len(only(a.log(), dormouse.PromptQueued)); n != 2 {
				t.Errorf("%d prompts were queued, want 2", n)
			}
		})
	}
}

// TestB10: the database takes over what its log holds, and the power fails. Of
// what both files were given any part may have reached the disk first.
func TestB10DatabaseAndLogMayReachTheDiskInAnyOrder(t *testing.T) {
	t.Parallel()
	only := func(file string) powercut.Keep {
		return func(u powercut.Unsynced) int {
			if u.Path == file {
				return powercut.PageSize
			}
			return 0
		}
	}
	half := func(u powercut.Unsynced) int { return powercut.PageSize * int(u.Page%2) }
	databaseSynced := func(r powercut.Request) bool { return r.Op == powercut.Sync && inDatabase(r) }
	logEmptied := func(r powercut.Request) bool { return r.Op == powercut.Truncate && inLog(r) }
	for _, c := range []struct {
		name string
		at   func(powercut.Request) bool
		keep powercut.Keep
	}{
		{"neither", databaseSynced, nil},
		{"only the database", databaseSynced, only("dormouse.db")},
		{"only the log", databaseSynced, only("dormouse.db-wal")},
		{"half of both", databaseSynced, half},
		{"before the log is emptied", logEmptied, nil},
		{"before the log is emptied half of both", logEmptied, half},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, disk := newFaulty(t)
			a := w.create(cold)
			for n := range 20 {
				a.send(fmt.Sprint(n), a.script(rig.Say("kept"))+strings.Repeat(" and more", 500))
			}
			a.rests()
			s := newStall(c.at)
			disk.Inject(s.fault)
			w.live().Signal(syscall.SIGTERM) // closing moves the log into the database
			w.outage(disk, s, c.keep)
			a.send("after", a.script(rig.Say("after")))
			a.rests()
		})
	}
}

// TestB10: the same while the server is at work, and when the log is begun anew
// over its old content.
func TestB10LogBegunAnewSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		skip int // syncs of the log after the database was synced
	}{{"while the database is synced", 0}, {"first commit of the new log", 1}, {"second commit of the new log", 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, disk := newFaulty(t)
			sessions := make([]*actor, 20) // many, because a model is sent all that was said
			for n := range sessions {
				sessions[n] = w.create(cold)
			}
			moved, synced := false, 0
			s := newStall(func(r powercut.Request) bool { // one connection writes: no two calls at once
				switch {
				case r.Op == powercut.Sync && inDatabase(r):
					moved = true
				case r.Op == powercut.Sync && inLog(r) && moved:
					synced++
				default:
					return false
				}
				return moved && synced == c.skip
			})
			disk.Inject(s.fault)
			w.meanwhile(func() {
				body := strings.Repeat("much to move ", 4500)
				for n := 0; ; n++ {
					select {
					case <-s.at:
						return
					default:
						a := sessions[n%len(sessions)]
						if err := a.Prompt(w.ctx, fmt.Sprint(n), a.script(rig.Say("kept"))+body); err != nil {
							t.Error(err)
							return
						}
					}
				}
			}, func() {
				w.outage(disk, s, func(u powercut.Unsynced) int { return powercut.PageSize * int((u.Page+1)%2) })
			})
			for _, a := range sessions {
				a.send("after", a.script(rig.Say("after")))
			}
		})
	}
}

// TestB11: a blob has its name, and the directory that holds the name is not on
// the disk yet. Until it is, no log may speak of it.
func TestB11NameOfABlobIsDurableBeforeTheLogNeedsIt(t *testing.T) {
	t.Parallel()
	w, disk := newFaulty(t)
	a := w.create(cold)
	s := newStall(func(r powercut.Request) bool { return r.Op == powercut.SyncDir && inBlobs(r) })
	disk.Inject(s.fault)
	body := a.script(rig.Say("the second time it was kept")) + large
	renamed := 0
	var answered error
	w.meanwhile(func() {
		answered = a.Command(w.ctx, "prompts", options{"content": body, "id": "large"})
	}, func() {
		w.outage(disk, s, func(u powercut.Unsynced) int {
			if u.Page == powercut.Name {
				renamed++
				return 0
			}
			return powercut.PageSize
		})
	})
	if renamed == 0 || !rig.Again(answered) {
		t.Errorf("the prompt was answered with %v, and %d names were lost", answered, renamed)
	}
	if n := len(only(a.log(), dormouse.PromptQueued)); n != 0 {
		t.Errorf("%d prompts are queued, want none", n)
	}
	a.send("large", body)
	a.rests()
	w.outage(disk, idle(), nil)
	a.has("large")
}

// idle is a disk that never hangs.
func idle() *stall {
	s := newStall(nil)
	s.reached()
	return s
}

// meanwhile runs f beside what the test itself does.
func (w *world) meanwhile(f, test func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	test()
	<-done
}
