package law_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/sessiontest"
)

func TestATreeIsBounded(t *testing.T) {
	sessions, deepest := 0, 0
	var grow func(w *world, depth int)
	grow = func(w *world, depth int) {
		sessions, deepest = sessions+1, max(deepest, depth)
		for i := 0; ; i++ {
			v := spawn(fmt.Sprint(depth, " ", i))
			events, err := w.try(v)
			if err != nil {
				if !errors.Is(err, dormouse.ErrConflict) {
					t.Fatal(err)
				}
				return
			}
			var made dormouse.Spawned
			if err := json.Unmarshal(events[0].Payload, &made); err != nil {
				t.Fatal(err)
			}
			grow(newWorld(t, made.Child), depth+1)
		}
	}
	grow(newWorld(t, dormouse.Created{}), 0)
	if sessions > dormouse.MaxOffspring+1 || sessions < dormouse.MaxOffspring/2 || deepest > dormouse.MaxDepth {
		t.Errorf("a tree of %d sessions, %d deep", sessions, deepest)
	}
}

func TestEachThreadIsRetriedForItself(t *testing.T) {
	w := running(t, dormouse.Created{})
	w.must(law.OpenThread{Thread: "sthr_second"})
	w.must(law.FailAttempt{Work: w.work(), Error: "model_request_failed_error", Message: "first"})
	w.at = "sthr_second"
	w.must(w.prompt("p2"), w.take("p2"))
	w.must(law.FailAttempt{Work: w.work(), Error: "model_request_failed_error", Message: "second"})
	if a := w.state.Attention(); a == nil || a.Reason != "first" {
		t.Fatalf("attention %+v", a)
	}
	w.must(law.Retry{Thread: "sthr_second"})
	if got := w.turn().Prompts[0].ID; got != dormouse.PromptID(sid, "p2") {
		t.Errorf("retry took %s up", got)
	}
	w.must(law.Retry{Thread: thread})
	w.at = thread
	if got := w.turn().Prompts[0].ID; got != dormouse.PromptID(sid, "p1") {
		t.Errorf("retry took %s up", got)
	}
	if err := sessiontest.Check(w.log); err != nil {
		t.Error(err)
	}
}
