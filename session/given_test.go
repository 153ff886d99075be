package session_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
)

// However much comes between and whoever dies, what was asked for under an id is not
// done again, and something else is not done under it either.
func TestACommandIsKnownByItsIDAsLongAsTheSessionLives(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		const others = 80
		if a, err := h.exec("sevt_x", "effect a"); err != nil || a.Exit != 0 {
			t.Fatalf("answered %+v, %v", a, err)
		}
		for i := range others {
			if _, err := h.exec(dormouse.EventID(fmt.Sprint("sevt_other", i)), "effect b"); err != nil {
				t.Fatal(err)
			}
		}
		again := func(when string) {
			t.Helper()
			if a, err := h.exec("sevt_x", "effect a"); err != nil || a.Exec != "sevt_x" || a.Exit != 0 {
				t.Errorf("%s: answered %+v, %v", when, a, err)
			}
			if err := h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_x", Command: "effect a"}}); err != nil {
				t.Errorf("%s: asked for again: %v", when, err)
			}
			if _, err := h.exec("sevt_x", "effect c"); !errors.Is(err, dormouse.ErrConflict) {
				t.Errorf("%s: another command under the same id: %v", when, err)
			}
			if err := h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_x", Command: "effect c"}}); !errors.Is(err, dormouse.ErrConflict) {
				t.Errorf("%s: another command under the same id, asked of the actor: %v", when, err)
			}
			prompt := law.Prompt{ID: "sevt_x", Body: "sha256:b", Content: []dormouse.Block{dormouse.Text("effect a")}}
			if err := h.do(prompt); !errors.Is(err, dormouse.ErrConflict) {
				t.Errorf("%s: a prompt under the id of a command: %v", when, err)
			}
			settle(time.Second)
			if a, c := h.boxes.effect("a"), h.boxes.effect("c"); a != 1 || c != 0 {
				t.Errorf("%s: it ran %d times, another %d times", when, a, c)
			}
		}
		again("by the same server")
		h.crash()
		settle(time.Second)
		again("by the next server")
		if err := h.do(law.Terminate{Reason: "done"}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		again("by a session that has ended")
		if err := h.do(law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_y", Command: "effect c"}}); !errors.Is(err, dormouse.ErrTerminated) {
			t.Errorf("a new one by a session that has ended: %v", err)
		}
		h.checked()
	})
}

func TestAWakeupThatHasFiredIsNotScheduledAgainByItsRetry(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		v := law.Schedule{ID: "wake_x", In: time.Minute, Content: []dormouse.Block{dormouse.Text("effect a")}}
		for range 2 {
			if err := h.do(v); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
		}
		settle(time.Hour)
		for _, when := range []string{"by the same server", "by the next server"} {
			if err := h.do(v); err != nil {
				t.Errorf("%s: asked for again: %v", when, err)
			}
			for _, other := range []law.Schedule{
				{ID: v.ID, In: v.In, Content: []dormouse.Block{dormouse.Text("other")}},
				{ID: v.ID, In: 2 * v.In, Content: v.Content},
				{ID: v.ID, Cron: "* * * * *", Content: v.Content},
				{ID: v.ID, At: h.now().Add(time.Hour), Content: v.Content},
			} {
				if err := h.do(other); !errors.Is(err, dormouse.ErrConflict) {
					t.Errorf("%s: another wake-up under the same id: %v", when, err)
				}
			}
			settle(time.Hour)
			if n := h.count(dormouse.WakeupFired); n != 1 {
				t.Errorf("%s: it fired %d times", when, n)
			}
			h.crash()
			settle(time.Second)
		}
		// One that was cancelled is over, too.
		v = law.Schedule{ID: "wake_y", In: time.Hour, Content: v.Content}
		for _, verb := range []law.Verb{v, law.Unschedule{ID: "wake_y"}, v} {
			if err := h.do(verb); err != nil {
				t.Fatal(err)
			}
		}
		settle(2 * time.Hour)
		if n := h.count(dormouse.WakeupFired); n != 1 {
			t.Errorf("a wake-up that was cancelled fired: %d", n)
		}
		h.checked()
	})
}

func TestARequestIsKnownByItsNameAsLongAsTheSessionLives(t *testing.T) {
	w := warm(t, dormouse.Created{})
	request := func(name, text string) law.Send {
		p := w.prompt(name + text)
		return law.Send{Request: dormouse.EventID("sevt_" + name), Body: dormouse.DigestOf([]byte(text)), Steps: []law.Step{{Prompt: &p}}}
	}
	w.must(request("first", "a"))
	for i := range 400 {
		w.must(request(fmt.Sprint("other", i), "b"))
		w.must(law.Interrupt{ID: dormouse.EventID(fmt.Sprint("sevt_i", i)), Flush: true})
	}
	if events, err := w.try(request("first", "a")); err != nil || len(events) > 0 {
		t.Errorf("the same request again: %d events, %v", len(events), err)
	}
	if _, err := w.try(request("first", "c")); !errors.Is(err, law.ErrOtherRequest) {
		t.Errorf("another request under the same name: %v", err)
	}
	if size := len(dormouse.Encode(w.state)); size > 4<<10 {
		t.Errorf("the state has %d bytes: ids must not be kept in it", size)
	}
}

// A branch begins with what was said, and with none of the ids: whoever goes on in it
// may give them all again.
func TestABranchMayGiveTheIDsOfWhatItBranchedFrom(t *testing.T) {
	talk := []dormouse.Event{
		{ID: "sevt_p", Type: dormouse.UserMessage, Payload: dormouse.Encode(dormouse.Message{Content: []dormouse.Block{dormouse.Text("hello")}})},
		{ID: "sevt_a", Type: dormouse.UserCustomToolResult, Payload: dormouse.Encode(dormouse.CustomToolResult{Use: "sevt_u"})},
	}
	d, err := law.Decide(law.State{}, law.Command{Now: epoch0, Verb: law.Create{Talk: talk, Created: dormouse.Created{
		Session: "sesn_branch", Tenant: "default", Owner: dormouse.User("ada"), Recovery: dormouse.RecoverAuto,
		Agent: dormouse.AgentConfig{Name: "a", Model: "m"}, Branch: &dormouse.Branched{From: sid, At: 9, Talk: len(talk)},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, rows := law.Project(law.State{}, d.Events); len(rows.ClientIDs) > 0 {
		t.Errorf("it begins with ids %v", rows.ClientIDs)
	}
}

// The log of a program that forgot ids may have one twice. Laying it out again keeps
// the first.
func TestALogWithDoubledIDsIsLaidOutWithTheFirstOfEach(t *testing.T) {
	w := warm(t, dormouse.Created{})
	w.must(run("sevt_x"), w.schedule("w"))
	log := w.log
	for _, e := range w.log {
		if e.Type == dormouse.ExecAsked || e.Type == dormouse.WakeupScheduled {
			e.Seq = log[len(log)-1].Seq + 1
			log = append(log, e)
		}
	}
	s := new(memory.Store)
	state, rows := law.Project(law.State{}, log)
	if err := s.Create(t.Context(), store.Batch{Session: sid, Events: log, Rows: &rows}); err != nil {
		t.Fatal(err)
	}
	rebuilt, err := history.Rebuild(t.Context(), s, nil, sid)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Rebuild(t.Context(), sid, rebuilt); err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"sevt_x": w.given["sevt_x"].Seq, "wake_w": w.given["wake_w"].Seq}
	got, err := s.ClientIDs(t.Context(), sid, "sevt_x", "wake_w")
	if diff := cmp.Diff(want, got); err != nil || diff != "" || state.Seq != uint64(len(log)) {
		t.Errorf("ids (-want +got), %v:\n%s", err, diff)
	}
}
