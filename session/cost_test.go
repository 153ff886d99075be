package session_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/session/law"
)

// ends are the ends of model calls.
func (h *house) ends() (ends []dormouse.OpEnd) {
	h.t.Helper()
	for _, e := range h.checked() {
		var p dormouse.OpEnd
		if e.Type == dormouse.OpFinished && json.Unmarshal(e.Payload, &p) == nil && p.Kind == dormouse.OpModel {
			ends = append(ends, p)
		}
	}
	return ends
}

// slowly is a reply of eight letters, one a second.
const slowly = `SCRIPT[{"text":"abcdefgh","chunks":8,"chunk_delay_ms":1000}]`

func TestACutModelCallCostsWhatWasSeenOfIt(t *testing.T) {
	const asks, seen, price = 7, 1, 3000 // about what the request and its reply have
	spent := func(t *testing.T, h *house, p dormouse.OpEnd) {
		t.Helper()
		if u := p.Usage; !p.Estimated || u.InputTokens < asks || u.OutputTokens < seen || p.CostMicros < (u.InputTokens+u.OutputTokens)*price/1000 {
			t.Errorf("ended as %+v", p)
		}
		if s := h.state(); s.Usage.InputTokens < p.Usage.InputTokens || s.CostMicros < p.CostMicros {
			t.Errorf("the session used %+v for %d", s.Usage, s.CostMicros)
		}
	}
	priced := func(h *house) { h.price = model.Price{Input: 3, Output: 3} }
	t.Run("interrupted", func(t *testing.T) {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{})
			h.mustPrompt("p1", slowly)
			settle(5 * time.Second)
			if err := h.do(law.Interrupt{ID: "sevt_i"}); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
			spent(t, h, h.ends()[0])
		}, priced)
	})
	t.Run("by a crash", func(t *testing.T) {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{})
			h.mustPrompt("p1", slowly)
			settle(5 * time.Second)
			h.crash()
			settle(time.Minute)
			ends := h.ends()
			spent(t, h, ends[0])
			if last := ends[len(ends)-1]; last.Estimated || last.Outcome != dormouse.OutcomeOK {
				t.Errorf("the whole one ended as %+v", last)
			}
		}, priced)
	})
	t.Run("with what its provider counted", func(t *testing.T) {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{})
			h.mustPrompt("p1", slowly)
			settle(5 * time.Second)
			if err := h.do(law.Interrupt{ID: "sevt_i"}); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
			want := dormouse.ModelUsage{InputTokens: 1000, OutputTokens: 500, CacheReadInputTokens: 7}
			if p := h.ends()[0]; p.Estimated || p.Usage != want || p.CostMicros != 4500 {
				t.Errorf("ended as %+v", p)
			}
		}, priced, func(h *house) {
			h.heard = func(r model.Request) {
				r.Counted(dormouse.ModelUsage{InputTokens: 1000, OutputTokens: 500, CacheReadInputTokens: 7})
			}
		})
	})
	t.Run("refused it costs nothing", func(t *testing.T) {
		live(t, func(t *testing.T, h *house) {
			h.create(dormouse.Created{})
			h.mustPrompt("p1", `SCRIPT[{"error":400}]`)
			settle(time.Second)
			if p := h.ends()[0]; p.Estimated || p.Usage != (dormouse.ModelUsage{}) || p.CostMicros != 0 {
				t.Errorf("ended as %+v", p)
			}
		}, priced)
	})
}

// Where the attempt that answers a tool call has sent nothing yet, the next request is
// estimated all the same.
func TestACallThatIsCutAfterAnApprovalCostsWhatItAsked(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: dormouse.AgentConfig{
			Name: "agent", Model: "scripted", System: strings.Repeat("word ", 4000),
			Tools: []dormouse.ToolConfig{{Name: "bash", Permission: dormouse.PermissionAsk}},
		}})
		h.mustPrompt("p1", `SCRIPT[{"tools":[{"name":"bash","input":{"command":"effect a"}}]},{"text":"abcdefgh","chunks":8,"chunk_delay_ms":1000}]`)
		settle(5 * time.Second)
		if err := h.do(law.Answer{ID: "sevt_ok", Use: h.use(dormouse.AgentToolUse), Allow: true}); err != nil {
			t.Fatal(err)
		}
		settle(3 * time.Second)
		h.crash()
		settle(time.Minute)
		cut := 0
		for _, p := range h.ends() {
			if p.Outcome == dormouse.OutcomeOK {
				continue
			}
			cut++
			if p.Usage.InputTokens < 5000 || !p.Estimated {
				t.Errorf("a call that asked 5,000 tokens ended %s with %+v, estimated %v", p.Outcome, p.Usage, p.Estimated)
			}
		}
		if cut != 1 {
			t.Errorf("%d calls were cut, want 1", cut)
		}
	})
}
