package session_test

import (
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
