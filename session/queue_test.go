package session_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// Queues are shared by the states that they are the same in.
func TestWhatFollowsFromAStateChangesNeitherItNorWhatElseFollows(t *testing.T) {
	w := newWorld(t, dormouse.Created{})
	for i := range 5 {
		w.must(w.prompt(fmt.Sprint(i)))
	}
	before := w.state
	held := slices.Clone(before.Thread(w.at).Queue)
	after := func(v law.Verb) func() []string {
		w.state = before
		w.must(v)
		s := w.state
		return func() []string {
			var names []string
			for _, q := range s.Thread(w.at).Queue {
				names = append(names, string(q.ID)+" "+string(q.Status))
			}
			return names
		}
	}
	id := func(name string) string { return string(dormouse.PromptID(sid, name)) + " queued" }
	all := []string{id("0"), id("1"), id("2"), id("3"), id("4")}
	type future struct {
		verb law.Verb
		want []string
		got  func() []string
	}
	futures := []future{
		{verb: w.prompt("a"), want: append(slices.Clone(all), id("a"))},
		{verb: w.prompt("b"), want: append(slices.Clone(all), id("b"))},
		{verb: law.Cancel{Prompt: dormouse.PromptID(sid, "1")}, want: slices.Concat(all[:1], all[2:])},
		{verb: law.Cancel{Prompt: dormouse.PromptID(sid, "3")}, want: slices.Concat(all[:3], all[4:])},
		{verb: w.take("0"), want: all[1:]},
	}
	for i := range futures {
		futures[i].got = after(futures[i].verb)
	}
	for _, f := range futures {
		if diff := cmp.Diff(f.want, f.got()); diff != "" {
			t.Errorf("after %T: %s", f.verb, diff)
		}
	}
	if diff := cmp.Diff(held, before.Thread(w.at).Queue); diff != "" {
		t.Errorf("the state they follow from: %s", diff)
	}
}

// An id that was just drawn is looked up once it may have been recorded.
func TestANewPromptWhoseAnswersWereLostIsOnePrompt(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("first", "hello") // a has it from now on
		settle(time.Second)
		b.on(a)
		left := 20 // by then its turn is over
		f.fault = func(law.Verb) error {
			if left--; left >= 0 {
				return dormouse.ErrUnknownOutcome
			}
			return nil
		}
		p := b.asks("p", "hello")
		p.New = true
		if err := b.do(p); err != nil {
			t.Error(err)
		}
		settle(time.Minute)
		if n := countType(b.checked(), dormouse.UserMessage); n != 2 || left >= 0 {
			t.Errorf("%d messages, and %d answers were not asked for", n, left)
		}
	})
}

func TestWhoseASessionIsIsKnownLoadedOrNot(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Tenant: "moon"})
		for _, loaded := range []bool{false, true} {
			if loaded {
				h.mustPrompt("p", "hello")
			} else {
				settle(time.Hour)
			}
			if got := h.live.Loaded() > 0; got != loaded {
				t.Fatalf("loaded is %v and not %v", got, loaded)
			}
			if tenant, err := h.live.Tenant(t.Context(), h.id); tenant != "moon" || err != nil {
				t.Errorf("loaded %v: %q, %v", loaded, tenant, err)
			}
		}
		for _, id := range []dormouse.SessionID{"sesn_0000000000000000000000000", "no id", ""} {
			if _, err := h.live.Tenant(t.Context(), id); !errors.Is(err, dormouse.ErrNotFound) {
				t.Errorf("%q: %v", id, err)
			}
		}
	})
}
