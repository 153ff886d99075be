package session_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

var byCall = dormouse.Created{Environment: dormouse.Environment{Snapshots: dormouse.SnapshotsByCall}}

func TestTheSnapshotOfACallIsMadeBeforeTheNextOneBegins(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(byCall)
		d.holds = make(chan struct{})
		h.mustPrompt("p1", script("effect x", "effect y"))
		settle(time.Minute)
		if h.boxes.effect("x") != 1 || h.boxes.effect("y") != 0 {
			t.Errorf("effects %v before the snapshot is taken", h.boxes.effects)
		}
		d.write("a", "1") // so that there is something to keep
		close(d.holds)
		settle(time.Minute)
		var order []string
		for _, e := range h.checked() {
			var p struct {
				dormouse.OpFact
				Reason string `json:"reason"`
			}
			_ = json.Unmarshal(e.Payload, &p)
			switch {
			case e.Type == dormouse.OpStarted && p.Op.Kind == dormouse.OpExec:
				order = append(order, "op")
			case e.Type == dormouse.SnapshotTaken:
				order = append(order, p.Reason)
			}
		}
		const want = "op, call, op, call, turn"
		if got := strings.Join(order, ", "); got != want {
			t.Errorf("order: %s", got)
		}
		for _, p := range h.state().Snapshots {
			if p.Midway {
				t.Errorf("no conversation goes with %+v", p)
			}
		}
	})
}

func TestTheNextServerMakesTheSnapshotOfTheCall(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(byCall)
		d.holds = make(chan struct{})
		h.mustPrompt("p1", script("effect x", "effect y"))
		settle(time.Second)
		h.crash()
		settle(time.Minute)
		if h.boxes.effect("y") != 0 {
			t.Error("the next call did not wait")
		}
		close(d.holds)
		settle(time.Minute)
		if h.boxes.effect("x") != 1 || h.boxes.effect("y") != 1 {
			t.Errorf("effects %v", h.boxes.effects)
		}
		if n := h.count(dormouse.SnapshotTaken); n != 3 {
			t.Errorf("%d snapshots", n)
		}
		h.checked()
	})
}

func TestACallWhoseSnapshotCannotBeMadeHoldsNobodyUp(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(byCall)
		d.broken = errors.New("no room")
		h.mustPrompt("p1", script("effect x", "effect y"))
		settle(time.Minute)
		if h.boxes.effect("y") != 1 || h.count(dormouse.TurnEnded) != 1 {
			t.Error("the turn did not go on")
		}
		if n := h.count(dormouse.SnapshotSkipped); n != 3 {
			t.Errorf("%d snapshots were skipped", n)
		}
		h.checked()
	})
}

// An interrupt does not wait for the snapshot.
func TestATurnThatWaitsForASnapshotIsInterrupted(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(byCall)
		d.holds = make(chan struct{})
		h.mustPrompt("p1", script("effect x", "effect y"))
		settle(time.Second)
		if err := h.do(law.Interrupt{ID: "sevt_stop"}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if h.count(dormouse.TurnEnded) != 1 {
			t.Error("the turn did not end")
		}
		close(d.holds)
		settle(time.Minute)
		if h.boxes.effect("y") != 0 {
			t.Error("it went on after it was interrupted")
		}
		h.checked()
	})
}

// What a call left can be gone on from with what was said until then.
func TestASessionBranchesBetweenTwoCalls(t *testing.T) {
	var asked []string
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(byCall)
		h.mustPrompt("p1", "the task "+script("effect x", "effect y"))
		settle(time.Minute)
		row, err := h.live.Branch(t.Context(), h.id, dormouse.User("ada"), session.BranchAsk{Snapshot: h.state().Snapshots[0].ID})
		if err != nil {
			t.Fatal(err)
		}
		h.id = row.Session
		asked = nil
		h.mustPrompt("p2", "another way")
		settle(time.Minute)
		all := strings.Join(asked, "\n")
		if !strings.Contains(all, "the task") || strings.Count(all, `"tool_use"`) != 1 || strings.Count(all, `"tool_result"`) != 1 {
			t.Errorf("the model heard:\n%s", all)
		}
		h.checked()
	}, func(h *house) {
		h.heard = func(r model.Request) {
			raw, _ := json.Marshal(r.Messages)
			asked = append(asked, string(raw))
		}
	})
}
