package session_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// large is a session whose first event is in a blob.
func large() dormouse.Created {
	a := everyTool()
	a.System = strings.Repeat("a long instruction ", 4000)
	return dormouse.Created{Agent: a}
}

// A sweep sets the files of sessions aside that are not there.
func TestASessionWhoseBlobIsMissingKeepsItsWorkspace(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		var mount func()
		h.damaged(large(), func() { mount = h.blobs.unmount() })
		if err := h.prompt("refused", "are you there?"); !errors.Is(err, dormouse.ErrDamaged) {
			t.Fatalf("a prompt = %v, want ErrDamaged", err)
		}
		if o := h.live.Owned(t.Context(), h.id); !o.Unsure {
			t.Errorf("a sweep is told %+v, want that nobody can tell", o)
		}
		if o := h.live.Owned(t.Context(), "sesn_0000000000000000000000000z"); o.Unsure || o.Known {
			t.Errorf("of no session a sweep is told %+v", o)
		}
		mount()
		settle(2 * time.Minute)
		if o := h.live.Owned(t.Context(), h.id); !o.Known {
			t.Errorf("when the blobs are back a sweep is told %+v", o)
		}
		h.mustPrompt("two", script("effect b"))
		settle(time.Minute)
		if n := h.boxes.effect("b"); n != 1 {
			t.Errorf("it acted %d times", n)
		}
		h.checked()
	})
}

// A session is loaded from its cached fold, and a turn reads all of its log.
func TestDamageBehindTheCachedFoldIsDeclared(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{SleepAfter: time.Minute})
		for i := range 20 {
			h.mustPrompt(string(rune('a'+i)), script("effect a"))
			settle(5 * time.Second)
		}
		settle(10 * time.Minute)
		if cached, err := h.store.State(t.Context(), h.id); err != nil || cached.Seq < 5 {
			t.Fatalf("cached is the fold up to %d, %v", cached.Seq, err)
		}
		h.store.spoil(5)
		h.mustPrompt("late", script("effect b"))
		settle(time.Minute)
		for _, when := range []string{"", "after a restart "} {
			if d := h.damage(); !strings.Contains(d, "event 5 ") {
				t.Fatalf("%slists say of it %q", when, d)
			}
			if err := h.prompt("refused", "are you there?"); !errors.Is(err, dormouse.ErrDamaged) {
				t.Errorf("%sa prompt = %v, want ErrDamaged", when, err)
			}
			if _, err := h.live.Peek(t.Context(), h.id); !errors.Is(err, dormouse.ErrDamaged) {
				t.Errorf("%speek = %v, want ErrDamaged", when, err)
			}
			if n := h.boxes.living(); n != 0 {
				t.Errorf("%s%d of its sandboxes go on", when, n)
			}
			before := h.store.claimed()
			settle(30 * time.Minute)
			if n := h.store.claimed() - before; n > 1 {
				t.Errorf("%sit was loaded %d times in half an hour", when, n)
			}
			h.crash()
			settle(time.Second)
		}
		// What was accepted is done when the bytes come back.
		h.store.spoil(0)
		settle(2 * time.Minute)
		if d := h.damage(); d != "" {
			t.Errorf("lists still say %q", d)
		}
		if n := h.boxes.effect("b"); n != 1 {
			t.Errorf("the accepted prompt acted %d times", n)
		}
		h.checked()
	})
}

// A prompt whose row is damaged is not one whose body is lost.
func TestAPromptBehindTheCachedFoldIsNotCancelledForDamage(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("one", script("sleep 1h"))
		settle(time.Second)
		for i := range 300 { // more than are kept at hand, so that the fold is cached with them
			h.mustPrompt(string(rune('a'+i%26))+string(rune('a'+i/26)), `SCRIPT[{"text":"queued"}]`)
		}
		queued, err := h.live.Prompts(t.Context(), h.id, dormouse.PromptIsQueued)
		if err != nil || len(queued) != 300 {
			t.Fatalf("%d prompts are queued, %v", len(queued), err)
		}
		bad := queued[20].Seq
		if cached, err := h.store.State(t.Context(), h.id); err != nil || cached.Seq < bad {
			t.Fatalf("cached is the fold up to %d of %d, %v", cached.Seq, bad, err)
		}
		h.store.spoil(bad)
		settle(2 * time.Hour)
		if h.damage() == "" {
			t.Error("nobody says that it is damaged")
		}
		if p, err := h.live.Prompt(t.Context(), h.id, queued[20].ID); err != nil || p.Status == dormouse.PromptIsCancelled {
			t.Errorf("the prompt is %s, %v", p.Status, err)
		}
		h.store.spoil(0)
		settle(2 * time.Hour)
		if p, err := h.live.Prompt(t.Context(), h.id, queued[20].ID); err != nil || p.Status != dormouse.PromptIsCompleted {
			t.Errorf("when it can be read again the prompt is %s, %v", p.Status, err)
		}
	})
}

// execAnswers lists the answers to commands.
func (h *house) execAnswers() (answers []dormouse.ExecAnswer) {
	for _, e := range h.log() {
		var a dormouse.ExecAnswer
		if (e.Type == dormouse.ExecAnswered || e.Type == dormouse.ExecRefused) && json.Unmarshal(e.Payload, &a) == nil {
			answers = append(answers, a)
		}
	}
	return answers
}

// The runner knows a command by its op, whatever became of its text.
func TestARunningCommandWhoseTextIsLostIsAnswered(t *testing.T) {
	for name, begun := range map[string]bool{"begun": true, "not begun": false} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{Warm: true})
				settle(time.Second)
				if !begun {
					h.store.slow(2 * time.Second) // the server is gone before it knows that it may send it
				}
				command := "effect a; sleep 10s; " + strings.Repeat("x", 70<<10)
				go func() { _ = h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_x", Command: command}}) }()
				settle(time.Second)
				h.store.slow(0)
				h.blobs.unmount()
				h.crash()
				settle(time.Minute)
				answers := h.execAnswers()
				if len(answers) != 1 || answers[0].Exec != "sevt_x" {
					t.Fatalf("answers are %+v\n%s", answers, dump(h.log()))
				}
				a, effects := answers[0], h.boxes.effect("a")
				switch {
				case begun && (a.Exit != 0 || a.Error != "" || a.Unknown || effects != 1):
					t.Errorf("the answer is %+v, and it acted %d times", a, effects)
				case !begun && (a.Exit != -1 || !strings.Contains(a.Error, "it had not begun") || effects != 0):
					t.Errorf("the answer is %+v, and it acted %d times", a, effects)
				}
				h.checked()
			})
		})
	}
}

// Its processes are ended, so that another sandbox may be awake in its place.
func TestADamagedSessionFreesItsSlot(t *testing.T) {
	crowded(t, 1, func(t *testing.T, h *house) {
		h.sessions(1)
		h.store.spoilOf(h.id, 2)
		h.mustPrompt("p", "are you there?")
		settle(time.Minute)
		if awake, _ := h.live.Slots(); h.damage() == "" || awake != 0 {
			t.Errorf("lists say %q, and %d sandboxes count as awake", h.damage(), awake)
		}
		h.sessions(1)
		if p := h.phase(); p != ready {
			t.Errorf("the next one is %s", p)
		}
	})
}
