package law_test

import (
	"fmt"
	"slices"
	"testing"

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
