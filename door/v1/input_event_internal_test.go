package v1

import (
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// Whatever a client sends is refused or becomes steps that a session understands.
func FuzzWhatIsReceived(f *testing.F) {
	for _, s := range []string{
		`{"events":[{"type":"user.message","content":[{"type":"text","text":"x"}]},{"type":"system.message","content":[{"type":"text","text":"y"}]}]}`,
		`{"events":[{"type":"user.interrupt","session_thread_id":null}]}`,
		`{"events":[{"type":"user.tool_confirmation","tool_use_id":"sevt_1","result":"deny","deny_message":"no"}]}`,
		`{"events":[{"type":"user.custom_tool_result","custom_tool_use_id":"sevt_1","content":[{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"x"}],"citations":{"enabled":true}}]}]}`,
		`{"events":[{"type":"user.message","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"x"},"title":null},{"type":"image","source":{"type":"url","url":"u"}}]}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req struct {
			Events []inputEvent `json:"events"`
		}
		if closedjson.Unmarshal(body, &req) != nil {
			return
		}
		out, ids, err := steps(req.Events, func(n int) dormouse.EventID { return eventIDFromKey("sesn_x", "k", n) }, false)
		if err != nil {
			return
		}
		if len(ids) != len(req.Events) {
			t.Errorf("%d events have %d ids", len(req.Events), len(ids))
		}
		for _, s := range out {
			n := 0
			for _, set := range []bool{s.Prompt != nil, s.Interrupt != nil, s.Answer != nil, s.System != nil} {
				if set {
					n++
				}
			}
			if n != 1 || stepID(s) == "" {
				t.Errorf("a step is %+v", s)
			}
			if s.Prompt != nil && dormouse.ValidateContent(s.Prompt.Content) != nil {
				t.Errorf("a prompt holds %+v", s.Prompt.Content)
			}
		}
	})
}
