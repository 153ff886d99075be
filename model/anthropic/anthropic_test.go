package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/anthropic"
	"github.com/dormouse-run/dormouse/model/modeltest"
	"github.com/dormouse-run/dormouse/model/scripted"
)

func serve(t *testing.T, h http.Handler) anthropic.Config {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return anthropic.Config{Key: "sk-test", BaseURL: s.URL}
}

func request(prompt string) model.Request {
	return model.Request{Model: "claude-sonnet-5-5", System: "be brief", Messages: modeltest.User(prompt), Tools: []model.Tool{modeltest.Bash()}}
}

func failure(t *testing.T, m model.Model, r model.Request) *model.Error {
	t.Helper()
	_, err := m.Reply(t.Context(), r, func(model.Delta) error { return nil })
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		t.Fatalf("got %v, want an *Error", err)
	}
	return e
}

func TestModelKeepsThePromisesOfAModel(t *testing.T) {
	modeltest.Run(t, func(t *testing.T) modeltest.Subject {
		s := scripted.NewServer(scripted.Options{})
		hangs, fails := request(`SCRIPT[{"hang":true}]`), request(`SCRIPT[{"error":529,"times":1}]`)
		return modeltest.Subject{
			Model: anthropic.New(serve(t, s)),
			Text:  request(`SCRIPT[{"text":"one two three four","chunks":4}]`),
			Tools: request(`SCRIPT[{"text":"first","tools":[{"name":"bash","input":{"command":"a"}},{"name":"bash"}]}]`),
			Hangs: &hangs, Fails: &fails, Sent: func() int { return s.Calls().Requests },
		}
	})
}

func TestItSaysWhatTheServerSays(t *testing.T) {
	m := anthropic.New(serve(t, scripted.NewServer(scripted.Options{})))
	for _, script := range []string{
		`hello`,
		`SCRIPT[{"text":"über alles 🐭","chunks":5}]`,
		`SCRIPT[{"text":"a","tools":[{"name":"bash","input":{"command":"x"}},{"name":"b"}]}]`,
		`SCRIPT[{"text":"half a sen","stop_reason":"max_tokens"}]`,
	} {
		got, err := m.Reply(t.Context(), request(script), func(model.Delta) error { return nil })
		if err != nil {
			t.Errorf("%s: %v", script, err)
		}
		want, err := scripted.New(scripted.Options{}).Reply(t.Context(), request(script), func(model.Delta) error { return nil })
		if err != nil {
			t.Errorf("%s: %v", script, err)
		}
		names := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".ID" }, cmp.Ignore()) // follow from the request
		if diff := cmp.Diff(want, got, names); diff != "" {
			t.Errorf("%s: %s", script, diff)
		}
	}
}

func TestStatusesBecomeKindsOfFailure(t *testing.T) {
	m := anthropic.New(serve(t, scripted.NewServer(scripted.Options{})))
	for status, want := range map[int]model.ErrorKind{
		429: model.RateLimited, 529: model.Overloaded, 503: model.Overloaded, 500: model.RequestFailed, 502: model.RequestFailed,
		400: model.Rejected, 401: model.Rejected, 404: model.Rejected, 413: model.Rejected,
	} {
		e := failure(t, m, request(fmt.Sprintf(`SCRIPT[{"error":%d,"retry_after_ms":250}]`, status)))
		if e.Kind != want || e.RetryAfter != 250*time.Millisecond {
			t.Errorf("%d is %s after %v, want %s after 250ms", status, e.Kind, e.RetryAfter, want)
		}
	}
}

// said is a stream of events, each with its type as its name.
func said(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			var kind struct{ Type string }
			_ = json.Unmarshal([]byte(e), &kind)
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind.Type, e)
		}
	}
}

const (
	start   = `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"usage":{"input_tokens":3,"cache_read_input_tokens":7,"cache_creation_input_tokens":5,"output_tokens":1}}}`
	text    = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	hello   = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}`
	stop    = `{"type":"content_block_stop","index":0}`
	ended   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`
	end     = `{"type":"message_stop"}`
	thought = `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`
	thinks  = `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`
	second  = `{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"b"}}`
	use     = `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"bash","input":{}}}`
	input   = `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`
	cut     = `{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":9}}`
)

func TestUsageIsOfTheWholeMessage(t *testing.T) {
	m := anthropic.New(serve(t, said(start, text, hello, stop, ended, end)))
	got, err := m.Reply(t.Context(), request("x"), func(model.Delta) error { return nil })
	want := dormouse.ModelUsage{InputTokens: 3, OutputTokens: 9, CacheReadInputTokens: 7, CacheCreationInputTokens: 5}
	if err != nil || got.Usage != want || got.StopReason != model.StopEndTurn {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestUsageIsReportedAlsoOfAnAnswerThatIsCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		output int64
	}{
		"at once":         {[]string{start, text, hello}, 1},
		"near its end":    {[]string{start, text, hello, stop, ended}, 9},
		"and it is whole": {[]string{start, text, hello, stop, ended, end}, 9},
	} {
		m := anthropic.New(serve(t, said(c.events...)))
		var got dormouse.ModelUsage
		r := request("x")
		r.Counted = func(u dormouse.ModelUsage) { got = u }
		_, _ = m.Reply(t.Context(), r, func(model.Delta) error { return nil })
		if want := (dormouse.ModelUsage{InputTokens: 3, OutputTokens: c.output, CacheReadInputTokens: 7, CacheCreationInputTokens: 5}); got != want {
			t.Errorf("%s: counted %+v", name, got)
		}
	}
}

func TestBlocksThatAreNotKeptLeaveNoGap(t *testing.T) {
	for name, events := range map[string][]string{
		"what it thinks":    {start, thought, thinks, stop, second, ended, end},
		"a text of nothing": {start, text, stop, second, ended, end},
	} {
		m := anthropic.New(serve(t, said(events...)))
		var got modeltest.Fragments
		reply, err := m.Reply(t.Context(), request("x"), got.Add)
		if err != nil || len(reply.Content) != 1 || reply.Content[0].Text != "b" {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
		if err := got.Match(reply); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if reply.Thought != (name == "what it thinks") {
			t.Errorf("%s: thought %v", name, reply.Thought)
		}
	}
}

func TestAToolCallThatWasCutOffIsNone(t *testing.T) {
	m := anthropic.New(serve(t, said(start, use, input, cut, end)))
	reply, err := m.Reply(t.Context(), request("x"), func(model.Delta) error { return nil })
	if err != nil || len(reply.Content) != 0 || reply.StopReason != model.StopMaxTokens {
		t.Errorf("%+v, %v", reply, err)
	}
}

func TestAnAnswerThatIsNotWholeIsAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		kind   model.ErrorKind
	}{
		"cut off":         {said(start, text, hello), model.RequestFailed},
		"nothing":         {said(), model.RequestFailed},
		"no beginning":    {said(text, hello, stop, ended, end), model.RequestFailed},
		"no reason":       {said(start, text, hello, stop, end), model.RequestFailed},
		"no JSON":         {said(start, use, input, ended, end), model.RequestFailed},
		"one block twice": {said(start, text, hello, text), model.RequestFailed},
		"overloaded":      {said(start, text, `{"type":"error","error":{"type":"overloaded_error","message":"later"}}`), model.Overloaded},
		"broken":          {said(start, text, `{"type":"error","error":{"type":"api_error","message":"oh"}}`), model.RequestFailed},
		"no stream":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, model.RequestFailed},
	} {
		if e := failure(t, anthropic.New(serve(t, c.answer)), request("x")); e.Kind != c.kind {
			t.Errorf("%s is %v", name, e)
		}
	}
}

func TestAReplyHasALimit(t *testing.T) {
	big := fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, strings.Repeat("x", 1<<20))
	events := []string{start, text}
	for range 20 {
		events = append(events, big)
	}
	if e := failure(t, anthropic.New(serve(t, said(events...))), request("x")); !strings.Contains(e.Error(), "longer than") {
		t.Errorf("%v", e)
	}
}

func TestSilenceEndsACall(t *testing.T) {
	c := serve(t, scripted.NewServer(scripted.Options{}))
	c.HeaderTimeout, c.IdleTimeout = 200*time.Millisecond, 200*time.Millisecond
	for name, script := range map[string]string{
		"before the first byte":   `SCRIPT[{"hang":true}]`,
		"in the middle of a text": `SCRIPT[{"text":"abcdef","chunk_delay_ms":600000}]`,
	} {
		if e := failure(t, anthropic.New(c), request(script)); e.Kind != model.RequestFailed || !strings.Contains(e.Error(), "nothing came in time") {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestNothingIsSentTwiceAndTheKeyNowhereElse(t *testing.T) {
	var requests atomic.Int32
	var asked map[string]any
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") != "Bearer sk-test" || r.Header.Get("Anthropic-Version") == "" {
			t.Errorf("headers %v", r.Header)
		}
		_ = json.NewDecoder(r.Body).Decode(&asked)
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusTemporaryRedirect)
	}))
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "other")
	r := request("hi")
	r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Content: []model.Part{{Type: model.PartToolUse, ID: "toolu_1", Name: "bash", Input: json.RawMessage(`{"command":"x"}`)}}},
		model.Message{Role: model.RoleUser, Content: []model.Part{{Type: model.PartToolResult, Use: "toolu_1", Result: []model.Part{{Type: model.PartText, Text: "out"}}, IsError: true}}})
	failure(t, anthropic.New(c), r)
	if requests.Load() != 1 {
		t.Errorf("%d requests", requests.Load())
	}
	var sent []model.Message
	raw, _ := json.Marshal(asked["messages"])
	if err := json.Unmarshal(raw, &sent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Messages, sent); diff != "" {
		t.Errorf("sent other messages: %s", diff)
	}
	if asked["stream"] != true || asked["max_tokens"] != 32000.0 || asked["model"] != "claude-sonnet-5-5" {
		t.Errorf("asked %v", asked)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(strings.Join([]string{start, text, hello, stop, ended, end}, "\n"))
	f.Add(strings.Join([]string{start, use, input, cut, end}, "\n"))
	f.Fuzz(func(t *testing.T, events string) {
		m := anthropic.New(serve(t, said(strings.Split(events, "\n")...)))
		var got modeltest.Fragments
		reply, err := m.Reply(t.Context(), request("x"), got.Add)
		if err != nil {
			if _, ok := errors.AsType[*model.Error](err); !ok {
				t.Errorf("%v is no *Error", err)
			}
			return
		}
		if err := got.Match(reply); err != nil {
			t.Error(err)
		}
	})
}

func TestEffortIsSent(t *testing.T) {
	requested := make(chan string, 1)
	m := anthropic.New(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Config struct{ Effort string } `json:"output_config"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		requested <- body.Config.Effort
		w.WriteHeader(http.StatusBadRequest)
	})))
	for _, effort := range []string{"", "low"} {
		r := request("hello")
		r.Effort = effort
		_, _ = m.Reply(t.Context(), r, func(model.Delta) error { return nil })
		if got := <-requested; got != effort {
			t.Errorf("told %q, not %q", got, effort)
		}
	}
}
