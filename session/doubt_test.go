package session_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// Of two tool calls of one reply the first runs when the turn is interrupted: it may
// have done something, and only the other can be tried again without a look.
func TestOnlyACallThatCannotHaveRunIsToldToBeRetried(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", `SCRIPT[{"tools":[{"name":"bash","input":{"command":"effect a; sleep 1h"}},{"name":"bash","input":{"command":"effect b"}}]}]`)
		settle(time.Second)
		if err := h.do(law.Interrupt{ID: "sevt_stop"}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		told := h.results()
		if len(told) != 2 || h.boxes.effect("a") != 1 || h.boxes.effect("b") != 0 {
			t.Fatalf("effects a=%d b=%d, and the agent is told %q", h.boxes.effect("a"), h.boxes.effect("b"), told)
		}
		if !strings.Contains(told[0], "may have executed") || strings.Contains(told[0], "Please retry") {
			t.Errorf("of the command that ran the agent is told %q", told[0])
		}
		if !strings.Contains(told[1], "Please retry") {
			t.Errorf("of the command that did not run the agent is told %q", told[1])
		}
		h.checked()
	})
}

// A snapshot that was asked for is taken, whether or not the turn that asked goes on.
func TestASnapshotThatIsInterruptedIsNotToldToBeRetried(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", script("sleep 1h"))
		settle(time.Second)
		s := h.state()
		s.Ops = slices.Clone(s.Ops)
		for i := range s.Ops {
			s.Ops[i].Kind = dormouse.OpSnapshot
		}
		d, err := law.Decide(s, law.Command{By: dormouse.User("ada"), Now: h.now(), Epoch: 1, Verb: law.Interrupt{ID: "sevt_stop"}})
		if err != nil || countType(d.Events, dormouse.AgentToolResult) != 1 {
			t.Fatalf("%d results, %v", countType(d.Events, dormouse.AgentToolResult), err)
		}
		for _, e := range d.Events {
			if e.Type == dormouse.AgentToolResult && !strings.Contains(string(e.Payload), "may have executed") {
				t.Errorf("the agent is told %s", e.Payload)
			}
		}
		settle(2 * time.Hour)
	})
}

// An op is recorded for a sandbox that this server has a link to, and for no other: if
// that turns out to be gone, the op would be of unknown outcome though it cannot have run.
func TestNoOpIsRecordedForASandboxThatWasNotReached(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		s := h.state()
		asked := law.Command{By: dormouse.User("ada"), Now: h.now(), Epoch: 1, Reached: s.Sandbox.Generation, Verb: law.Run{ExecAsk: dormouse.ExecAsk{Exec: "sevt_x", Command: "true"}}}
		d, err := law.Decide(s, asked)
		if err != nil || countType(d.Events, dormouse.OpStarted) != 1 {
			t.Errorf("in a sandbox that was reached %d ops are begun, %v", countType(d.Events, dormouse.OpStarted), err)
		}
		asked.Reached = 0
		d, err = law.Decide(s, asked)
		if err != nil || countType(d.Events, dormouse.OpStarted) != 0 || countType(d.Events, dormouse.ExecAsked) != 1 {
			t.Errorf("in one that was not, %d ops are begun for %d commands, %v",
				countType(d.Events, dormouse.OpStarted), countType(d.Events, dormouse.ExecAsked), err)
		}
	})
}
