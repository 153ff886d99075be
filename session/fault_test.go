package session_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// full makes every append fail for want of room, and counts them.
func (h *house) full(only func(store.Batch) bool) *atomic.Int64 {
	var tried atomic.Int64
	h.store.set(func(b store.Batch) (error, error) {
		if only != nil && !only(b) {
			return nil, nil
		}
		tried.Add(1)
		return dormouse.ErrFull, nil
	})
	return &tried
}

// has picks the batches that hold an event of this type.
func has(t dormouse.EventType) func(store.Batch) bool {
	return func(b store.Batch) bool { return countType(b.Events, t) > 0 }
}

// fewPerSecond is what a step that cannot be done now may cost: it is tried
// every quarter of a second.
const fewPerSecond = 5

func TestNobodyWaitsForASandboxAfterTheirTurn(t *testing.T) {
	for name, ended := range map[string]dormouse.Phase{"terminate": dormouse.PhaseTerminated, "hibernate": dormouse.PhaseHibernated} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.boxes.slow = 10 * time.Second
				h.create(dormouse.Created{})
				h.mustPrompt("p", script("effect a"))
				settle(time.Second)
				if name == "terminate" {
					if err := h.do(law.Terminate{Reason: "enough"}); err != nil {
						t.Fatal(err)
					}
				} else {
					if err := h.do(law.Interrupt{ID: "sevt_i"}); err != nil {
						t.Fatal(err)
					}
					for h.do(law.Hibernate{}) != nil {
						time.Sleep(time.Millisecond)
					}
				}
				settle(time.Minute)
				if h.phase() != ended || h.boxes.created != 1 || h.boxes.effect("a") != 0 {
					t.Errorf("phase %s, %d sandboxes, %d effects", h.phase(), h.boxes.created, h.boxes.effect("a"))
				}
				settle(time.Hour)
				if n := h.live.Loaded(); n != 0 {
					t.Errorf("%d actors stay loaded", n)
				}
				h.checked()
			})
		})
	}
}

func TestAFullDiskIsNotStormed(t *testing.T) {
	const long = 2 * time.Minute
	for name, test := range map[string]func(h *house) (calls *atomic.Int64){
		"a sandbox that should sleep": func(h *house) *atomic.Int64 {
			h.create(dormouse.Created{Warm: true, SleepAfter: time.Minute})
			settle(time.Second)
			return h.full(nil)
		},
		"an attempt that is due": func(h *house) *atomic.Int64 {
			h.create(dormouse.Created{})
			h.mustPrompt("p", `SCRIPT[{"text":"at last","error":529,"times":3}]`)
			settle(100 * time.Millisecond)
			return h.full(nil)
		},
		"a prompt to be taken, and more of them sent": func(h *house) *atomic.Int64 {
			h.create(dormouse.Created{})
			tried := h.full(has(dormouse.TurnStarted))
			for i := range 100 {
				h.mustPrompt(fmt.Sprint(i), "hello")
				settle(time.Millisecond)
			}
			return tried
		},
		"a sandbox that cannot start": func(h *house) *atomic.Int64 {
			h.boxes.setBroken(errors.New("no space left"))
			h.boxes.slow = time.Millisecond
			tried := h.full(nil)
			h.create(dormouse.Created{Warm: true})
			return tried
		},
		"a sandbox that has stopped": func(h *house) *atomic.Int64 {
			h.create(dormouse.Created{Warm: true})
			settle(time.Second)
			tried := h.full(has(dormouse.SandboxStopped))
			if err := h.do(law.Hibernate{}); err != nil {
				h.t.Fatal(err)
			}
			return tried
		},
		"a command that was killed": func(h *house) *atomic.Int64 {
			h.create(dormouse.Created{})
			h.mustPrompt("p", script("effect a; sleep 1h"))
			settle(time.Second)
			tried := h.full(has(dormouse.OpFinished))
			if err := h.do(law.Interrupt{ID: "sevt_i"}); err != nil {
				h.t.Fatal(err)
			}
			return tried
		},
		"a command whose sandbox died": func(h *house) *atomic.Int64 {
			h.create(dormouse.Created{})
			h.mustPrompt("p", script("effect a; sleep 1h"))
			settle(time.Second)
			h.full(nil)
			h.boxes.kill(1)
			settle(time.Second)
			h.store.set(nil)
			tried := h.full(has(dormouse.SandboxLost))
			return tried
		},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				tried := test(h)
				called := h.boxes.called()
				settle(long)
				most := int64(fewPerSecond * long / time.Second)
				if n := tried.Load(); n > most {
					t.Errorf("%d appends to a full disk in %s", n, long)
				}
				if n := h.boxes.called() - called; int64(n) > most {
					t.Errorf("%d calls of the driver in %s", n, long)
				}
				h.boxes.setBroken(nil)
				h.store.set(nil)
				settle(time.Hour)
				if phase := h.phase(); phase == dormouse.PhaseRunning || phase == dormouse.PhaseCreating || phase == dormouse.PhaseHibernating {
					t.Errorf("phase %s once there is room", phase)
				}
				h.checked()
			})
		})
	}
}

func TestTheEndOfAKilledCommandIsRecordedAsItWas(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("effect a; sleep 1h"))
		settle(time.Second)
		h.full(func(b store.Batch) bool { return len(b.Events) == 1 && has(dormouse.OpFinished)(b) })
		if err := h.do(law.Interrupt{ID: "sevt_i"}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		h.store.set(nil)
		settle(time.Minute)
		h.checked()
		ops, err := h.live.Ops(t.Context(), h.id, 1)
		if err != nil || len(ops) != 1 || ops[0].Outcome != dormouse.OutcomeInterrupted {
			t.Errorf("%+v, %v", ops, err)
		}
	})
}

// TestAnAnswerThatComesAtOnceCostsNoAttempt answers in the instant in which the
// attempt that asked has found itself over and is not yet gone.
func TestAnAnswerThatComesAtOnceCostsNoAttempt(t *testing.T) {
	for range 200 {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{Agent: dormouse.AgentConfig{
				Name: "a", Model: "scripted", CustomTools: []dormouse.CustomTool{{Name: "lookup"}},
			}})
			f, err := h.live.Follow(t.Context(), h.id, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			h.mustPrompt("p", `SCRIPT[{"tools":[{"name":"lookup","input":{}}]},{"text":"done"}]`)
			var use dormouse.EventID
			for blocked := false; !blocked; {
				items, err := f.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range items {
					if i.Event.Type == dormouse.AgentCustomToolUse {
						use = i.Event.ID
					}
					blocked = blocked || i.Event.Type == dormouse.TurnBlocked
				}
			}
			if err := h.do(law.Answer{ID: "sevt_1", Use: use, Content: []dormouse.Block{dormouse.Text("42")}}); err != nil {
				t.Fatal(err)
			}
			settle(time.Minute)
			if n := countType(h.checked(), dormouse.SessionError); n != 0 {
				t.Fatalf("%d errors\n%s", n, dump(h.log()))
			}
		})
	}
}

// A log that was continued elsewhere is no fault of the client: it is told to
// retry, and the next actor believes what is there.
func TestALogThatIsNotWhereItWasLeftIsNoConflictOfTheClients(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("before", script("say before"))
		settle(time.Second)
		var once atomic.Bool
		h.store.set(func(b store.Batch) (error, error) {
			if has(dormouse.PromptQueued)(b) && once.CompareAndSwap(false, true) {
				return dormouse.ErrConflict, nil
			}
			return nil, nil
		})
		if err := h.prompt("after", script("say after")); !errors.Is(err, dormouse.ErrLeaseLost) || errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("prompt = %v, want ErrLeaseLost", err)
		}
		settle(time.Second)
		h.mustPrompt("after", script("say after"))
		settle(time.Minute)
		if n := countType(h.log(), dormouse.AgentMessage); n != 2 {
			t.Errorf("%d messages, want both", n)
		}
		h.checked()
	})
}

func TestALostBodyHidesNothingElse(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("large", strings.Repeat("x", 100<<10)+` SCRIPT[{"text":"one"}]`)
		settle(time.Second)
		clear(h.blobs.m) // the disk lost it
		h.crash()
		h.mustPrompt("small", `SCRIPT[{"text":"two"}]`)
		settle(time.Second)
		if got := h.texts(); !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("the agent said %q", got)
		}
		lost := 0
		for _, e := range h.log() {
			if strings.Contains(string(e.Payload), `"lost":"sha256:`) {
				lost++
			}
		}
		if lost != 2 { // as it was queued, and as it was taken
			t.Errorf("%d payloads lost", lost)
		}
	})
}
