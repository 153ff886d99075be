package v1_test

import (
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/v1/site"
)

// TestWhatGoesWrongIsTold has a model that is overloaded for a while, and one that
// refuses; then the session goes on. What is rare is told too: a message of the
// system, and that the model thought.
func TestWhatGoesWrongIsTold(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, site.Options{})
	c := newClient(ctx, t, s, false)
	has := func(kind string) func([]site.Event) bool {
		return func(seen []site.Event) bool {
			return slices.ContainsFunc(seen, func(e site.Event) bool { return e.Type == kind })
		}
	}
	c.send("busy", says("busy"), c.message("busy", rig.Step{"error": 529, "retry_after_ms": 10, "times": 2, "text": "better now"}))
	c.until("the busy model answers", func(seen []site.Event) bool { return idle(since(seen, "busy"), "end_turn") })
	c.send("refused", says("refused"), c.message("refused", rig.Step{"error": 400, "times": 99}))
	c.until("the turn is given up", func(seen []site.Event) bool { return idle(since(seen, "refused"), "retries_exhausted") })
	c.until("the error is told", has("session.error"))
	c.send("system", says("system"), c.message("system", rig.Say("noted")),
		map[string]any{"type": "system.message", "content": []any{map[string]any{"type": "text", "text": "The cat is out."}}})
	c.until("the system message is taken", func(seen []site.Event) bool {
		return has("system.message")(seen) && idle(since(seen, "system"), "end_turn")
	})
	c.send("thinking", says("thinking"), c.message("thinking", rig.Step{"thinking": true, "text": "I think so"}))
	c.until("the thought is told", func(seen []site.Event) bool {
		return has("agent.thinking")(since(seen, "thinking")) && idle(since(seen, "thinking"), "end_turn")
	})
	c.end()
}
