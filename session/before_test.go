package session_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/visit"
)

var ada = dormouse.User("ada")

// reasons lists why snapshots were taken and turns begun, in order.
func (h *house) reasons() string {
	h.t.Helper()
	var order []string
	for _, e := range h.checked() {
		var p struct {
			Reason string `json:"reason"`
		}
		_ = json.Unmarshal(e.Payload, &p)
		switch e.Type { //nolint:exhaustive // those that matter
		case dormouse.SnapshotTaken:
			order = append(order, p.Reason)
		case dormouse.SnapshotSkipped:
			order = append(order, "no "+p.Reason)
		case dormouse.TurnStarted:
			order = append(order, "begins")
		}
	}
	return strings.Join(order, ", ")
}

// did has a person change the workspace by a command.
func (h *house) did(d *snapshotDriver, name, text string) {
	h.t.Helper()
	if _, err := h.exec("", "effect "+name); err != nil {
		h.t.Fatal(err)
	}
	d.write(name, text)
}

// looked is how often the workspace was looked at.
func (d *snapshotDriver) looked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.looks
}

func (h *house) revert(clientID string, how session.RestoreOptions) dormouse.WorkspaceSwap {
	h.t.Helper()
	swap, err := h.live.Revert(h.t.Context(), h.id, ada, dormouse.PromptID(h.id, clientID), how)
	if err != nil {
		h.t.Fatal(err)
	}
	return swap
}

// files wakes the session and returns what its workspace holds.
func (h *house) files(d *snapshotDriver) map[string]string {
	h.t.Helper()
	h.visit(true, h.state().Sandbox.Generation+1).Close()
	return d.has()
}

func TestRevertLeavesWhatPeopleDidBeforeTheTurn(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		h.did(d, "mine", "by hand")
		h.mustPrompt("p2", script("effect y"))
		settle(time.Second)
		if got, want := h.reasons(), "begins, turn, before, begins, turn"; got != want {
			t.Errorf("order: %s", got)
		}
		h.revert("p2", session.RestoreOptions{})
		settle(time.Minute)
		if got := h.files(d); got["mine"] != "by hand" {
			t.Errorf("after the revert: %v", got)
		}
		h.checked()
	})
}

// A snapshot takes a while, and who comes meanwhile is answered: the turn waits for what
// they did, too.
func TestWhatComesWhileTheSnapshotBeforeIsTakenIsNotLost(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		d.notes = make(map[dormouse.SnapshotID]map[string]string)
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		h.did(d, "first", "by hand")
		holds := make(chan struct{})
		d.mu.Lock()
		d.holds = holds
		d.mu.Unlock()
		h.mustPrompt("p2", script("effect y"))
		settle(time.Second)
		h.did(d, "second", "by hand")
		d.mu.Lock()
		d.holds = nil
		d.mu.Unlock()
		close(holds)
		settle(time.Minute)
		if got, want := h.reasons(), "begins, turn, before, before, begins, no turn"; got != want {
			t.Errorf("order: %s", got)
		}
		h.revert("p2", session.RestoreOptions{})
		settle(time.Minute)
		if got := h.files(d); got["first"] != "by hand" || got["second"] != "by hand" {
			t.Errorf("after the revert: %v", got)
		}
		h.checked()
	})
}

func TestTheFirstTurnCanBeReverted(t *testing.T) {
	t.Run("files were there", func(t *testing.T) {
		withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
			h.create(dormouse.Created{Warm: true})
			settle(time.Second)
			v := h.visit(false, 1)
			_, _ = v.Open(t.Context(), visit.Stream{Tree: &runner.Tree{Path: ".", Put: true}}) // fake sandboxes have none
			v.Close()
			d.write("mine", "copied in")
			h.mustPrompt("p1", script("effect x"))
			settle(time.Second)
			if got, want := h.reasons(), "before, begins, turn"; got != want {
				t.Errorf("order: %s", got)
			}
			h.revert("p1", session.RestoreOptions{})
			settle(time.Minute)
			if got := h.files(d); len(got) != 1 || got["mine"] != "copied in" {
				t.Errorf("after the revert: %v", got)
			}
		})
	})
	for name, warm := range map[string]bool{"cold": false, "warm": true} {
		t.Run("without files, "+name, func(t *testing.T) {
			withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
				h.create(dormouse.Created{Warm: warm})
				settle(time.Second)
				h.mustPrompt("p1", script("effect x"))
				settle(time.Second)
				h.did(d, "made", "by the turn")
				swap := h.revert("p1", session.RestoreOptions{})
				settle(time.Minute)
				if swap.Snapshot != "" || swap.Replaced == "" {
					t.Errorf("went back to %+v", swap)
				}
				if got := h.files(d); len(got) != 0 {
					t.Errorf("after the revert: %v", got)
				}
				if _, err := h.live.Restore(t.Context(), h.id, ada, swap.Replaced, session.RestoreOptions{}); err != nil {
					t.Fatal(err)
				}
				settle(time.Minute)
				if got := h.files(d); got["made"] != "by the turn" {
					t.Errorf("came back to %v", got)
				}
				h.checked()
			})
		})
	}
}

func TestATurnBeginsWithoutALookWhereNothingCouldHaveChanged(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		v := h.visit(false, 1) // a visitor that only reads changes nothing
		_, _ = v.Open(t.Context(), visit.Stream{Tree: &runner.Tree{Path: "."}})
		_, _ = v.Ports(t.Context())
		v.Close()
		for _, id := range []string{"p1", "p2"} {
			h.mustPrompt(id, "hello")
			settle(time.Second)
		}
		if n := d.looked(); n != 0 {
			t.Errorf("looked %d times before anything happened", n)
		}
		h.mustPrompt("p3", script("effect x"))
		settle(time.Second)
		if n := d.looked(); n != 1 {
			t.Errorf("looked %d times after a turn", n)
		}
		for _, id := range []string{"p4", "p5"} {
			h.mustPrompt(id, "hello")
			settle(time.Second)
		}
		if n := d.looked(); n != 1 {
			t.Errorf("looked %d times more although nothing could have changed", n-1)
		}
		h.checked()
	})
}

// A turn that changes no files needs no snapshot of what a person did before, whichever
// snapshot has that.
func TestATurnEndsWithoutALookWhereOnlyOthersUsedTheSandbox(t *testing.T) {
	for name, asks := range map[string]bool{"asked": true, "before": false} {
		t.Run(name, func(t *testing.T) {
			withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
				h.create(dormouse.Created{Warm: true})
				settle(time.Second)
				h.did(d, "mine", "by hand")
				if asks {
					if _, err := h.live.Snapshot(t.Context(), h.id, ada, dormouse.SnapshotAsk{}); err != nil {
						t.Fatal(err)
					}
				}
				for _, id := range []string{"p1", "p2"} {
					h.mustPrompt(id, "hello")
					settle(time.Second)
				}
				if got, want := h.reasons(), name+", begins, begins"; got != want || d.looked() != 1 {
					t.Errorf("order: %s, after %d looks", got, d.looked())
				}
				h.checked()
			})
		})
	}
}

func TestWhereAProcessLivesEveryTurnBeginsWithALook(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		d.notes = make(map[dormouse.SnapshotID]map[string]string)
		h.boxes.usage = runner.Usage{Processes: 2, Shells: 1}
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		d.write("log", "by a process")
		h.mustPrompt("p2", "hello")
		settle(time.Second)
		h.mustPrompt("p3", "hello")
		settle(time.Second)
		h.boxes.mu.Lock()
		h.boxes.usage = runner.Usage{}
		h.boxes.mu.Unlock()
		h.mustPrompt("p4", "hello")
		settle(time.Second)
		h.mustPrompt("p5", "hello")
		settle(time.Second)
		// The last process had ended when the fourth began.
		if got, want := h.reasons(), "begins, turn, before, begins, no before, begins, no before, begins, begins"; got != want {
			t.Errorf("order: %s", got)
		}
	})
}

// The snapshot of a turn asks what lives while the turn ends. What people start between
// the answer and the snapshot lives too.
func TestAProcessStartedAfterATurnIsKnownToItsSnapshot(t *testing.T) {
	for name, starts := range map[string]func(h *house){
		"by a command": func(h *house) {
			if _, err := h.exec("", "effect y"); err != nil {
				h.t.Error(err)
			}
		},
		"in a terminal": func(h *house) {
			v := h.visit(false, 1)
			if _, err := v.Open(h.t.Context(), visit.Stream{Terminal: &runner.Terminal{ID: "mine"}}); !errors.Is(err, errNoStreams) {
				h.t.Error(err)
			}
			v.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
				h.create(dormouse.Created{Warm: true})
				settle(time.Second)
				h.mustPrompt("p1", script("sleep 5s; effect x"))
				settle(time.Second)
				d.holds = make(chan struct{})
				go func() { _, _ = h.live.Snapshot(t.Context(), h.id, ada, dormouse.SnapshotAsk{}) }()
				settle(10 * time.Second) // the turn is over, and its snapshot waits for the other
				d.write("x", "by the turn")
				starts(h)
				h.boxes.mu.Lock()
				h.boxes.usage = runner.Usage{Processes: 2, Shells: 1}
				h.boxes.mu.Unlock()
				close(d.holds)
				settle(time.Minute)
				if got := h.reasons(); !strings.HasSuffix(got, "turn") {
					t.Fatalf("order: %s", got)
				}
				if !h.state().Workspace.Live {
					t.Error("nobody looks at what it will write")
				}
				h.checked()
			})
		})
	}
}

func TestTheNextServerMakesTheSnapshotBeforeATurn(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.did(d, "mine", "by hand")
		d.holds = make(chan struct{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		h.crash()
		settle(time.Minute)
		if h.boxes.effect("x") != 0 {
			t.Error("the turn did not wait")
		}
		close(d.holds)
		settle(time.Minute)
		if got, want := h.reasons(), "before, begins, turn"; got != want {
			t.Errorf("order: %s", got)
		}
		if h.boxes.effect("x") != 1 {
			t.Error("the turn did not run")
		}
	})
}

func TestASnapshotBeforeATurnThatCannotBeMadeHoldsNobodyUp(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.did(d, "mine", "by hand")
		d.broken = errors.New("no room")
		h.mustPrompt("p1", "hello")
		settle(time.Minute)
		if got, want := h.reasons(), "no before, begins"; !strings.HasPrefix(got, want) {
			t.Errorf("order: %s", got)
		}
		d.broken = nil
		h.mustPrompt("p2", "hello")
		settle(time.Minute)
		if s := h.state(); len(s.Snapshots) == 0 {
			t.Error("what could not be kept before the first turn was not kept before the second")
		}
	})
}

// A sandbox that starts or stops is not captured; what people did in it waits with the
// prompt.
func TestAPromptWaitsUntilTheWorkspaceCanBeCaptured(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.did(d, "mine", "by hand")
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		h.mustPrompt("p1", script("effect x"))
		settle(time.Minute)
		if got, want := h.reasons(), "before, begins, turn"; got != want {
			t.Errorf("order: %s", got)
		}
		h.revert("p1", session.RestoreOptions{})
		settle(time.Minute)
		if got := h.files(d); got["mine"] != "by hand" {
			t.Errorf("after the revert: %v", got)
		}
	})
}

func TestGoingBackKeepsWhatItReplaces(t *testing.T) {
	for _, revert := range []bool{true, false} {
		withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
			h.create(dormouse.Created{})
			h.mustPrompt("p1", script("effect x"))
			settle(time.Second)
			h.mustPrompt("p2", script("effect y"))
			settle(time.Second)
			h.did(d, "mine", "by hand")
			var swap dormouse.WorkspaceSwap
			if revert {
				swap = h.revert("p2", session.RestoreOptions{})
			} else {
				var err error
				if swap, err = h.live.Restore(t.Context(), h.id, ada, h.state().Snapshots[0].ID, session.RestoreOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			settle(time.Minute)
			if got := h.files(d); got["mine"] != "" || swap.Replaced == "" {
				t.Errorf("went back to %v, replaced %q", got, swap.Replaced)
			}
			if p, ok := h.state().Snapshot(swap.Replaced); !ok || p.Aside != revert {
				t.Errorf("what was replaced: %+v, %v", p, ok)
			}
			if revert { // its conversation was given up
				if _, err := h.live.Restore(t.Context(), h.id, ada, swap.Replaced, session.RestoreOptions{History: true}); !errors.Is(err, dormouse.ErrConflict) {
					t.Errorf("with its conversation: %v", err)
				}
			}
			back, err := h.live.Restore(t.Context(), h.id, ada, swap.Replaced, session.RestoreOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// Nothing has changed since, so that what this replaces is held already.
			if back.Replaced != swap.Snapshot {
				t.Errorf("coming back replaced %s, which is %s", back.Replaced, swap.Snapshot)
			}
			settle(time.Minute)
			if got := h.files(d); got["mine"] != "by hand" {
				t.Errorf("came back to %v", got)
			}
			h.checked()
		})
	}
}

func TestGoingBackIsRefusedIfWhatItReplacesCannotBeKept(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		h.did(d, "mine", "by hand")
		d.broken = errors.New("no room")
		if _, err := h.live.Revert(t.Context(), h.id, ada, dormouse.PromptID(h.id, "p1"), session.RestoreOptions{}); !errors.Is(err, dormouse.ErrConflict) || !strings.Contains(err.Error(), "no room") {
			t.Errorf("reverted: %v", err)
		}
		if got := d.has(); got["mine"] != "by hand" {
			t.Errorf("has %v", got)
		}
		if swap := h.revert("p1", session.RestoreOptions{Discard: true}); swap.Replaced != "" {
			t.Errorf("replaced %s", swap.Replaced)
		}
	})
}

func TestWhoMayChangeFilesIsRecordedBeforeTheyAreLetIn(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		touched := func(want ...string) {
			t.Helper()
			var by []string
			for _, e := range h.log() {
				var p dormouse.WorkspaceTouch
				if e.Type == dormouse.WorkspaceTouched && json.Unmarshal(e.Payload, &p) == nil {
					by = append(by, p.By)
				}
			}
			if !slices.Equal(by, want) {
				t.Errorf("recorded %v, want %v", by, want)
			}
		}
		v := h.visit(false, 1)
		defer v.Close()
		_, _ = v.Open(t.Context(), visit.Stream{Terminal: &visit.Terminal{ID: "t", Command: []string{"bash"}}})
		touched("terminal")
		_, _ = v.Open(t.Context(), visit.Stream{Port: &visit.PortStream{Port: 80}})
		touched("terminal") // that files may have changed is known
		if _, err := h.live.Snapshot(t.Context(), h.id, ada, dormouse.SnapshotAsk{}); err != nil {
			t.Fatal(err)
		}
		_, _ = v.Open(t.Context(), visit.Stream{Port: &visit.PortStream{Port: 80}})
		touched("terminal", "port")
		// Of what comes while a snapshot is taken, that snapshot says nothing.
		looks := d.looked()
		d.holds = make(chan struct{})
		h.mustPrompt("p1", "hello")
		settle(time.Second)
		_, _ = v.Open(t.Context(), visit.Stream{Tree: &runner.Tree{Path: ".", Put: true}})
		_, _ = v.Open(t.Context(), visit.Stream{Tree: &runner.Tree{Path: ".", Put: true}})
		touched("terminal", "port", "files")
		close(d.holds)
		settle(time.Minute)
		if s := h.state().Workspace; s.Touched == 0 && d.looked() < looks+2 {
			t.Error("what came while the snapshot was taken counts as looked at")
		}
		h.checked()
	})
}

// A turn says which snapshot will be taken of it, so that its followers can wait.
func TestATurnSaysWhichSnapshotWillBeTaken(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, _ *snapshotDriver) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		h.mustPrompt("p2", "hello")
		settle(time.Second)
		var said []dormouse.SnapshotID
		for _, e := range h.log() {
			var p dormouse.TurnFact
			if e.Type == dormouse.TurnEnded && json.Unmarshal(e.Payload, &p) == nil {
				said = append(said, p.Snapshot)
			}
		}
		if snapshots := h.state().Snapshots; len(snapshots) != 1 || !slices.Equal(said, []dormouse.SnapshotID{snapshots[0].ID, ""}) {
			t.Errorf("said %v, taken %+v", said, snapshots)
		}
	})
}

// Deleting the newest snapshot keeps the files; the next turn begins when there is another
// snapshot of them.
func TestATurnBeginsWithASnapshotThoughTheNewestWasDeleted(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		d.notes = make(map[dormouse.SnapshotID]map[string]string)
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		d.write("a", "good")
		h.mustPrompt("p2", script("effect x"))
		settle(time.Second)
		newest := h.state().Snapshots[1].ID
		if err := h.do(law.ForgetSnapshots{IDs: []dormouse.SnapshotID{newest}}); err != nil {
			t.Fatal(err)
		}
		d.looks = 0
		h.mustPrompt("p3", script("effect x"))
		settle(time.Second)
		s := h.state().Snapshots
		if len(s) != 2 || s[1].ID == newest || d.looks != 2 { // before, and after the turn, which changed nothing
			t.Fatalf("snapshots %v, looked %d times", s, d.looks)
		}
		if m, err := h.live.Manifest(t.Context(), h.id, s[1].ID); err != nil || m.Reason != dormouse.SnapshotBefore {
			t.Errorf("%+v, %v", m, err)
		}
		d.write("a", "bad")
		if _, err := h.live.Revert(t.Context(), h.id, dormouse.User("ada"), dormouse.PromptID(h.id, "p3"), session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		h.mustPrompt("p4", script("effect z"))
		settle(time.Minute)
		if got := d.has()["a"]; got != "good" {
			t.Errorf("a is %q", got)
		}
		h.checked()
	})
}
