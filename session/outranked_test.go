package session_test

import (
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// A database that was restored from a backup has forgotten epochs that the sandbox
// remembers. The session is attached again soon, however many they are, under an epoch that
// no actor has had.
func TestASandboxThatKnowsANewerEpochThanTheDatabaseIsReachedAboveIt(t *testing.T) {
	for name, ahead := range map[string]uint64{"by one": 1, "by many": 1000} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{Warm: true})
				settle(time.Second)
				was, err := h.store.Epoch(t.Context(), h.id)
				if err != nil {
					t.Fatal(err)
				}
				h.cut()
				h.boxes.mu.Lock()
				box := h.boxes.boxes[boxName{h.id, 1}]
				box.epoch = was + ahead + 1 // the next claim is below it
				forgotten := box.epoch
				h.boxes.mu.Unlock()
				h.open()
				if a, err := h.exec("sevt_x", "effect a"); err != nil || a.Error != "" || h.boxes.effect("a") != 1 {
					t.Errorf("answered %+v, %v", a, err)
				}
				if phase := h.phase(); phase != dormouse.PhaseReady || h.state().Sandbox.Phase != law.SandboxActive || h.state().Sandbox.Generation != 1 {
					t.Errorf("it is %s, its sandbox %+v", phase, h.state().Sandbox)
				}
				h.boxes.mu.Lock()
				defer h.boxes.mu.Unlock()
				if box.epoch <= forgotten || box.epoch > forgotten+3 {
					t.Errorf("the sandbox was reached under epoch %d, and knew %d", box.epoch, forgotten)
				}
			})
		})
	}
}
