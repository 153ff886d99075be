package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

func (h *testServer) questions(path string) []rest.Question {
	h.t.Helper()
	var answer struct {
		Questions []rest.Question `json:"questions"`
	}
	h.call(http.MethodGet, path+"/questions", "", http.StatusOK, &answer)
	if answer.Questions == nil {
		h.t.Errorf("%s: no list", path)
	}
	return answer.Questions
}

func TestQuestionsAreWhatWaitsForPeople(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false,"tools":[{"name":"bash","permission":"ask"},{"name":"question_ask"}],"custom_tools":[{"name":"lookup","input_schema":{"type":"object"}}],
		"prompt":"SCRIPT[{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"a\"}},{\"name\":\"lookup\",\"input\":{\"key\":1}},{\"name\":\"question_ask\",\"input\":{\"question\":\"which one?\",\"options\":[\"this\",\"that\"],\"expires_in_seconds\":3600}}]},{\"text\":\"end\"}]"}`)
	s := h.until(path, dormouse.PhaseWaiting)
	all := h.questions(path)
	if len(all) != 3 || len(s.Questions) != 3 || all[0].Kind != dormouse.OpApproval || all[0].Name != "bash" || string(all[0].Input) != `{"command":"a"}` ||
		all[1].Kind != dormouse.OpCustom || !all[1].Expires.IsZero() || all[1].Question != "" {
		t.Fatalf("questions %+v", all)
	}
	q := all[2]
	if q.Kind != dormouse.OpQuestion || q.Question != "which one?" || len(q.Options) != 2 || q.Expires.Sub(q.Asked) != time.Hour ||
		q.Thread != s.Threads[0].ID || s.Threads[0].Turn.Waiting[2].Gate != dormouse.GateQuestion {
		t.Errorf("question %+v", q)
	}
	answer := func(format string, args ...any) *http.Request {
		return h.request(http.MethodPost, path+"/answers", strings.NewReader(fmt.Sprintf(format, args...)))
	}
	h.refuses(answer(`{"tool_use_id":%q,"result":"allow"}`, q.ToolUse), http.StatusBadRequest, "words")
	h.refuses(answer(`{"tool_use_id":%q,"answer":"yes"}`, all[0].ToolUse), http.StatusBadRequest, "allow or deny")
	for name, body := range map[string]string{
		"nothing": `{"tool_use_id":%q}`, "both": `{"tool_use_id":%q,"answer":"x","result":"allow"}`, "null": `{"tool_use_id":%q,"answer":null}`,
		"empty": `{"tool_use_id":%q,"answer":" "}`, "a number": `{"tool_use_id":%q,"answer":1}`, "content": `{"tool_use_id":%q,"content":"x"}`,
		"an answer to a custom tool": `{"custom_tool_use_id":%q,"answer":"x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.t = t
			h.refuses(h.request(http.MethodPost, path+"/answers", strings.NewReader(fmt.Sprintf(body, q.ToolUse))), http.StatusBadRequest, "")
		})
	}
	var won, lost atomic.Int32
	var people sync.WaitGroup
	for n := range 8 {
		people.Go(func() {
			switch status, b := h.do(answer(`{"tool_use_id":%q,"answer":[{"type":"text","text":"that, says %d"}]}`, q.ToolUse, n)); status {
			case http.StatusOK:
				won.Add(1)
			case http.StatusConflict:
				lost.Add(1)
			default:
				t.Errorf("%d %s", status, b)
			}
		})
	}
	people.Wait()
	if won.Load() != 1 || lost.Load() != 7 {
		t.Errorf("%d answers won, %d lost", won.Load(), lost.Load())
	}
	if left := h.questions(path); len(left) != 2 {
		t.Errorf("left are %+v", left)
	}
	h.do(answer(`{"tool_use_id":%q,"result":"deny"}`, all[0].ToolUse))
	h.do(answer(`{"custom_tool_use_id":%q,"content":"42"}`, all[1].ToolUse))
	h.rested(path)
	if left := h.questions(path); len(left) != 0 {
		t.Errorf("left are %+v", left)
	}
}

// A client that loses the response to its answer sends the answer again under the
// same id, and succeeds, while another answer is refused.
func TestAnAnswerIsKnownByItsID(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false,"tools":[{"name":"question_ask"}],
		"prompt":"SCRIPT[{\"tools\":[{\"name\":\"question_ask\",\"input\":{\"question\":\"which one?\",\"expires_in_seconds\":3600}}]},{\"text\":\"end\"}]"}`)
	h.until(path, dormouse.PhaseWaiting)
	q := h.questions(path)[0]
	body := func(id, words string) string {
		return fmt.Sprintf(`{"tool_use_id":%q,"answer":%q,"id":%q}`, q.ToolUse, words, id)
	}
	for range 2 {
		h.call(http.MethodPost, path+"/answers", body("mine", "this"), http.StatusOK, nil)
		h.until(path, dormouse.PhaseReady)
	}
	h.refuses(h.request(http.MethodPost, path+"/answers", strings.NewReader(body("mine", "that"))), http.StatusConflict, "another request")
	h.refuses(h.request(http.MethodPost, path+"/answers", strings.NewReader(body("other", "this"))), http.StatusConflict, "waits")
	h.refuses(h.request(http.MethodPost, path+"/prompts", strings.NewReader(`{"content":"this","id":"mine"}`)), http.StatusConflict, "already sent")
}
