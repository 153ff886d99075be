package v1

import (
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
)

// What is shown of a message is its beginning, without a hole, or it is not shown.
func TestAFragmentThatWasMissedEndsThePreview(t *testing.T) {
	const op = dormouse.OpID("op_x")
	v := viewOf("sesn_x")
	show := func(deltas ...dormouse.Delta) string {
		p := newPreviews(v)
		p.see(&dormouse.Event{ID: dormouse.SpanOf(op), Type: dormouse.SpanModelRequestStart, Thread: v.primary})
		var b []byte
		for i := range deltas {
			deltas[i].Op, deltas[i].First = op, len(deltas[i].Text)
			b = p.delta(b, &deltas[i])
		}
		return string(b)
	}
	if got := show(dormouse.Delta{Text: "one "}, dormouse.Delta{At: 4, Text: "two"}); strings.Count(got, "event_delta") != 2 {
		t.Errorf("all of it is shown as %s", got)
	}
	if got := show(dormouse.Delta{Text: "one "}, dormouse.Delta{At: 8, Text: "three"}, dormouse.Delta{At: 13, Text: "four"}); strings.Count(got, "event_delta") != 1 {
		t.Errorf("with a hole it is shown as %s", got)
	}
	if got := show(dormouse.Delta{At: 4, Text: "two"}); got != "" {
		t.Errorf("without its beginning it is shown as %s", got)
	}
}
