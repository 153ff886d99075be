package session_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
)

func TestAWaitForAChildIsGivenBackByACleanStop(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.mustPrompt("p", grow(script("sleep 5m")))
		settle(time.Second)
		h.mustPrompt("q", says(use("child_wait", map[string]any{"child": h.tree()[1], "timeout_seconds": 3600})))
		settle(time.Minute)
		h.live.EndFollowers()
		settle(5 * time.Second) // requests are drained
		h.close()
		h.open()
		settle(time.Hour)
		events := h.checked()
		for _, kind := range []dormouse.EventType{dormouse.SessionError, dormouse.SessionStatusRescheduled} {
			if n := countType(events, kind); n != 0 {
				t.Errorf("a clean stop brought %d %s", n, kind)
			}
		}
		if texts := h.texts(); len(texts) != 2 {
			t.Errorf("the agent said %q", texts)
		}
	})
}

// What a child was asked may be far more than fits in a reply, or in memory.
func TestALookAtAChildKeepsTheEndOfWhatIsLong(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool()})
		h.mustPrompt("p", grow(`SCRIPT[{"text":"begun"}]`))
		settle(time.Second)
		child := h.of(h.tree()[1])
		child.mustPrompt("q", strings.Repeat("x", 1<<20)+" the end")
		settle(time.Second)
		h.mustPrompt("r", says(use("child_read", map[string]any{"child": child.id, "last": 2})))
		settle(time.Second)
		told := h.results()
		if last := told[len(told)-1]; len(last) > 40<<10 || !strings.Contains(last, "x the end\nSaid: ") {
			t.Errorf("it was told %d bytes, which end with %q", len(last), last[max(0, len(last)-100):])
		}
	})
}
