package session_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// crowded runs f with a limit on the sandboxes that may be awake.
func crowded(t *testing.T, most int, f func(t *testing.T, h *house)) {
	live(t, func(t *testing.T, h *house) {
		h.stop()
		if err := h.live.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.most = most
		h.open()
		f(t, h)
	})
}

// sessions makes so many, a minute apart, each with a sandbox that never sleeps
// by itself.
func (h *house) sessions(n int) (ids []dormouse.SessionID) {
	h.t.Helper()
	for range n {
		h.create(dormouse.Created{Warm: true})
		ids = append(ids, h.id)
		settle(time.Minute)
	}
	return ids
}

// phases shows those of several sessions.
func (h *house) phases(ids []dormouse.SessionID) (phases []dormouse.Phase) {
	h.t.Helper()
	for _, id := range ids {
		h.id = id
		phases = append(phases, h.phase())
	}
	return phases
}

func (h *house) expect(ids []dormouse.SessionID, want ...dormouse.Phase) {
	h.t.Helper()
	got := h.phases(ids)
	for i := range want {
		if got[i] != want[i] {
			h.t.Fatalf("they are %v, not %v", got, want)
		}
	}
}

// at is when the first event of a type happened.
func (h *house) at(t dormouse.EventType) time.Time {
	h.t.Helper()
	for _, e := range h.log() {
		if e.Type == t {
			return e.Time
		}
	}
	h.t.Fatalf("no %s in the log", t)
	return time.Time{}
}

const (
	ready      = dormouse.PhaseReady
	hibernated = dormouse.PhaseHibernated
	creating   = dormouse.PhaseCreating
	atWork     = dormouse.PhaseRunning
)

func TestTheLongestIdleIsEvicted(t *testing.T) {
	crowded(t, 2, func(t *testing.T, h *house) {
		ids := h.sessions(2)
		h.id = ids[0]
		h.mustPrompt("p", script("effect a")) // now the second has been idle longer
		settle(time.Minute)
		ids = append(ids, h.sessions(1)...)
		h.expect(ids, ready, hibernated, ready)
		for _, h.id = range ids {
			h.checked()
		}
	})
}

func TestWhoIsAtWorkKeepsItsSandbox(t *testing.T) {
	crowded(t, 2, func(t *testing.T, h *house) {
		ids := h.sessions(2)
		for _, h.id = range ids {
			h.mustPrompt("p", script("sleep 30m"))
		}
		settle(time.Minute)
		ids = append(ids, h.sessions(2)...)
		for _, h.id = range ids[2:] {
			h.mustPrompt("p", script("sleep 10m"))
		}
		settle(time.Minute)
		h.expect(ids, atWork, atWork, atWork, atWork)
		if awake, waiting := h.live.Slots(); awake != 2 || waiting != 2 {
			t.Errorf("%d are awake, %d wait", awake, waiting)
		}
		settle(time.Hour)
		h.expect(ids, hibernated, hibernated, ready, ready)
		for _, h.id = range ids[:2] {
			h.checked()
			if stopped := h.at(dormouse.SandboxStopping); stopped.Before(h.at(dormouse.TurnEnded)) {
				t.Errorf("it was stopped at %s, in its turn", stopped)
			}
		}
	})
}

func TestAWaitingTurnGoesOnWhenASlotIsFree(t *testing.T) {
	crowded(t, 1, func(t *testing.T, h *house) {
		h.sessions(1)
		h.mustPrompt("p", script("sleep 10m"))
		settle(time.Second)
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect b"))
		settle(time.Minute)
		if h.boxes.effect("b") != 0 {
			t.Fatal("two are awake")
		}
		settle(time.Hour)
		if h.boxes.effect("b") != 1 || h.phase() != ready {
			t.Errorf("it is %s, and the effect happened %d times", h.phase(), h.boxes.effect("b"))
		}
		h.checked()
	})
}

func TestVisitorsAreNotAskedToLeave(t *testing.T) {
	crowded(t, 1, func(t *testing.T, h *house) {
		ids := h.sessions(1)
		visit, err := h.live.Reach(t.Context(), h.id, true)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, h.sessions(1)...)
		h.expect(ids, ready, creating)
		visit.Close()
		settle(time.Minute)
		h.expect(ids, hibernated, ready)
	})
}

func TestWhoWaitsForASlotCanBeDeleted(t *testing.T) {
	crowded(t, 1, func(t *testing.T, h *house) {
		h.sessions(1)
		h.mustPrompt("p", script("sleep 1h"))
		settle(time.Second)
		h.sessions(1)
		if err := h.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if _, err := h.store.Session(t.Context(), h.id); err == nil {
			t.Error("it is still there")
		}
		if awake, waiting := h.live.Slots(); awake != 1 || waiting != 0 {
			t.Errorf("%d are awake, %d wait", awake, waiting)
		}
		settle(2 * time.Hour)
	})
}

func TestAServerFindsWhoIsAwake(t *testing.T) {
	crowded(t, 0, func(t *testing.T, h *house) {
		ids := h.sessions(3)
		h.expect(ids, ready, ready, ready)
		h.cut()
		h.most = 1
		h.open()
		for _, id := range ids {
			if owned := h.live.Owned(t.Context(), id); !owned.Known || owned.Generation != 1 {
				t.Errorf("%+v", owned)
			}
		}
		settle(time.Minute)
		h.expect(ids, hibernated, hibernated, ready)
	})
}

// A server that starts looks at every sandbox of the machine, those of others too.
func TestAServerCountsNoSlotForTheSandboxOfAnother(t *testing.T) {
	together(t, 1, func(t *testing.T, f *cluster) {
		a := f.servers[0]
		a.create(dormouse.Created{})
		a.mustPrompt("p", script("sleep 10s"))
		settle(time.Second)
		b := f.join()
		if owned := b.live.Owned(t.Context(), a.id); !owned.Known || owned.Generation != 1 {
			t.Errorf("%+v", owned)
		}
		settle(time.Minute)
		if awake, _ := b.live.Slots(); awake != 0 {
			t.Errorf("%d are awake on a server that has no session", awake)
		}
	})
}

func TestASandboxThatFailsFreesItsSlot(t *testing.T) {
	crowded(t, 1, func(t *testing.T, h *house) {
		h.boxes.setBroken(errors.New("no room"))
		h.sessions(1)
		h.boxes.setBroken(nil)
		ids := h.sessions(1)
		h.expect(ids, ready)
	})
}
