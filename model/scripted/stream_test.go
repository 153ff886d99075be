package scripted_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/modeltest"
	"github.com/dormouse-run/dormouse/model/scripted"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// streaming is a client whose every request is answered with body.
func streaming(body io.Reader) *scripted.Client {
	return answering(&http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}, Body: io.NopCloser(body)})
}

// The events that streams in these tests are made of.
const (
	start     = `{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}`
	textStart = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	hello     = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}`
	stop0     = `{"type":"content_block_stop","index":0}`
	useStart  = `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"u1","name":"bash","input":{}}}`
	useInput  = `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}`
	halfInput = `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`
	stop1     = `{"type":"content_block_stop","index":1}`
	endTurn   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`
	endTool   = `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`
	endMax    = `{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":9}}`
	end       = `{"type":"message_stop"}`
	ping      = `{"type":"ping"}`
)

func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("event: x\ndata: " + e + "\n\n")
	}
	return b.String()
}

func TestStreamsThatMakeAReply(t *testing.T) {
	text := []string{"hello"}
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"a text":                      {sse(start, textStart, hello, stop0, endTurn, end), text},
		"pings and unknown events":    {sse(ping, start, `{"type":"news"}`, textStart, ping, hello, stop0, endTurn, end), text},
		"carriage returns, comments":  {": hi\r\n\r\n" + strings.ReplaceAll(sse(start, textStart, hello, stop0, endTurn, end), "\n", "\r\n"), text},
		"data in several lines":       {sse(start, textStart, "{\"type\":\"content_block_delta\",\ndata: \"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}", stop0, endTurn, end), text},
		"no space after the colon":    {strings.ReplaceAll(sse(start, textStart, hello, stop0, endTurn, end), "data: ", "data:"), text},
		"text in the first event":     {sse(start, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"hello"}}`, stop0, endTurn, end), text},
		"a tool call":                 {sse(start, textStart, hello, stop0, useStart, useInput, stop1, endTool, end), []string{"hello", `bash{"a":1}`}},
		"a tool call without input":   {sse(start, textStart, hello, stop0, useStart, stop1, endTool, end), []string{"hello", `bash{}`}},
		"an empty text is dropped":    {sse(start, textStart, stop0, useStart, useInput, stop1, endTool, end), []string{`bash{"a":1}`}},
		"a blank text is dropped":     {sse(start, textStart, strings.ReplaceAll(hello, "hello", `\n\n`), stop0, useStart, useInput, stop1, endTool, end), []string{`bash{"a":1}`}},
		"blanks before text are kept": {sse(start, textStart, strings.ReplaceAll(hello, "hello", `\n`), hello, stop0, endTurn, end), []string{"\nhello"}},
		"thinking is dropped": {sse(start, `{"type":"content_block_start","index":0,"content_block":{"type":"thinking"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`, stop0,
			strings.ReplaceAll(textStart, `"index":0`, `"index":1`), strings.ReplaceAll(hello, `"index":0`, `"index":1`), stop1, endTurn, end), text},
		"a call that met the limit was never made": {sse(start, textStart, hello, stop0, useStart, halfInput, stop1, endMax, end), text},
		"a NUL is replaced":                        {sse(start, textStart, strings.ReplaceAll(hello, "hello", `a\u0000b`), stop0, endTurn, end), []string{"a\uFFFDb"}},
		"nothing after the end is read":            {sse(start, textStart, hello, stop0, endTurn, end, end, start, hello) + "garbage", text},
		"two last deltas":                          {sse(start, textStart, hello, stop0, endTurn, endTurn, end), text},
	} {
		t.Run(name, func(t *testing.T) {
			var seen modeltest.Fragments
			got, err := streaming(strings.NewReader(c.body)).Reply(t.Context(), request("hi"), seen.Add)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, words(got)); diff != "" {
				t.Error(diff)
			}
			if want := strings.Contains(c.body, "thinking"); got.Thought != want {
				t.Errorf("thought: got %v, want %v", got.Thought, want)
			}
			if err := seen.Match(got); err != nil {
				t.Error(err)
			}
			if got.Usage.InputTokens != 7 || got.Usage.OutputTokens != 9 {
				t.Errorf("usage is %+v", got.Usage)
			}
		})
	}
}

func TestStreamsThatAreAFailedRequest(t *testing.T) {
	for name, body := range map[string]string{
		"empty":                            "",
		"truncated in a line":              sse(start, textStart) + "data: {\"type\":",
		"truncated in an event":            sse(start, textStart) + "data: " + hello + "\n",
		"truncated in a block":             sse(start, textStart, hello),
		"truncated before the end":         sse(start, textStart, hello, stop0, endTurn),
		"malformed JSON":                   sse(start, textStart, `{"type":`, stop0, endTurn, end),
		"a field of the wrong type":        sse(start, textStart, `{"type":"content_block_delta","index":"0"}`, stop0, endTurn, end),
		"no start":                         sse(textStart, hello, stop0, endTurn, end),
		"two starts":                       sse(start, start, textStart, hello, stop0, endTurn, end),
		"a start without message":          sse(`{"type":"message_start"}`, endTurn, end),
		"a block begun twice":              sse(start, textStart, textStart, hello, stop0, endTurn, end),
		"a block begun again":              sse(start, textStart, hello, stop0, textStart, hello, stop0, endTurn, end),
		"a block skipped":                  sse(start, useStart, useInput, stop1, endTool, end),
		"a block ended twice":              sse(start, textStart, hello, stop0, stop0, endTurn, end),
		"a fragment before its block":      sse(start, hello, textStart, stop0, endTurn, end),
		"a fragment after its block":       sse(start, textStart, stop0, hello, endTurn, end),
		"a fragment of another block":      sse(start, textStart, useInput, stop0, endTurn, end),
		"a fragment of the wrong kind":     sse(start, textStart, strings.ReplaceAll(useInput, `"index":1`, `"index":0`), stop0, endTurn, end),
		"a fragment without text":          sse(start, textStart, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta"}}`, stop0, endTurn, end),
		"a block without index":            sse(start, `{"type":"content_block_start","content_block":{"type":"text"}}`, endTurn, end),
		"content after the last delta":     sse(start, endTurn, textStart, hello, stop0, end),
		"the end inside a block":           sse(start, textStart, hello, endTurn, end),
		"the end without last delta":       sse(start, textStart, hello, stop0, end),
		"no final usage":                   sse(start, textStart, hello, stop0, `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, end),
		"no stop reason":                   sse(start, textStart, hello, stop0, `{"type":"message_delta","delta":{},"usage":{"output_tokens":9}}`, end),
		"a tool call that does not end":    sse(start, textStart, hello, stop0, useStart, useInput, endTool, end),
		"a tool call without its stop":     sse(start, textStart, hello, stop0, useStart, useInput, stop1, endTurn, end),
		"a stop without its tool call":     sse(start, textStart, hello, stop0, endTool, end),
		"a tool call with half an input":   sse(start, textStart, hello, stop0, useStart, halfInput, stop1, endTool, end),
		"a tool call with a list as input": sse(start, textStart, hello, stop0, useStart, strings.ReplaceAll(useInput, `{\"a\":1}`, `[]`), stop1, endTool, end),
		"a tool call without id":           sse(start, textStart, hello, stop0, strings.ReplaceAll(useStart, "u1", ""), stop1, endTool, end),
		"a tool call twice":                sse(start, textStart, hello, stop0, useStart, stop1, strings.ReplaceAll(useStart, `"index":1`, `"index":2`), `{"type":"content_block_stop","index":2}`, endTool, end),
		"a block after half an input":      sse(start, textStart, hello, stop0, useStart, halfInput, stop1, strings.ReplaceAll(textStart, `"index":0`, `"index":2`), endMax, end),
		"an error that says nothing":       sse(start, `{"type":"error"}`),
	} {
		t.Run(name, func(t *testing.T) {
			if e := failure(t, streaming(strings.NewReader(body)), request("hi")); e.Kind != model.RequestFailed {
				t.Errorf("got %v", e)
			}
		})
	}
}

func TestErrorInAStreamKeepsItsKind(t *testing.T) {
	for kind, want := range map[string]model.ErrorKind{
		"overloaded_error": model.Overloaded, "rate_limit_error": model.RateLimited,
		"api_error": model.RequestFailed, "invalid_request_error": model.Rejected,
	} {
		body := sse(start, textStart, hello, `{"type":"error","error":{"type":"`+kind+`","message":"sorry"}}`)
		if e := failure(t, streaming(strings.NewReader(body)), request("hi")); e.Kind != want || !strings.Contains(e.Error(), "sorry") {
			t.Errorf("%s: %v", kind, e)
		}
	}
}

func TestAnswerOfAnotherTypeIsAFailedRequest(t *testing.T) {
	for kind, body := range map[string]string{"text/html": "<html>", "": "", "application/json": "<html>"} {
		c := answering(&http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))})
		if e := failure(t, c, request("hi")); e.Kind != model.RequestFailed {
			t.Errorf("%s: %v", kind, e)
		}
	}
}

// endless never runs out of one byte.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.read += len(p)
	return len(p), nil
}

func TestHugeLineIsNotBuffered(t *testing.T) {
	for name, head := range map[string]string{
		"of data":        sse(start, textStart) + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`,
		"of a comment":   sse(start) + ": ",
		"from the first": "",
	} {
		line := new(endless)
		if e := failure(t, streaming(io.MultiReader(strings.NewReader(head), io.LimitReader(line, 100<<20))), request("hi")); e.Kind != model.RequestFailed {
			t.Errorf("%s: %v", name, e)
		}
		if line.read > 2<<20 {
			t.Errorf("%s: %d bytes were read", name, line.read)
		}
	}
}

func TestEventOfManyLinesIsNotBuffered(t *testing.T) {
	lines := &repeating{text: "data: " + strings.Repeat("x", 1000) + "\n"}
	failure(t, streaming(lines), request("hi"))
	if lines.read > 2<<20 {
		t.Errorf("%d bytes were read", lines.read)
	}
}

func TestStreamThatNeverEndsIsLeft(t *testing.T) {
	pings := &repeating{text: ": " + strings.Repeat("x", 8000) + "\n" + sse(ping)}
	if e := failure(t, streaming(pings), request("hi")); e.Kind != model.RequestFailed {
		t.Error(e)
	}
	if pings.read > 65<<20 {
		t.Errorf("%d bytes were read", pings.read)
	}
}

// repeating says the same for ever.
type repeating struct {
	text string
	read int
}

func (r *repeating) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], r.text[(r.read+n)%len(r.text):])
	}
	r.read += n
	return n, nil
}

func FuzzStream(f *testing.F) {
	f.Add(sse(start, textStart, hello, stop0, useStart, useInput, stop1, endTool, end))
	f.Add(sse(start, textStart, hello, stop0, useStart, halfInput, stop1, endMax, end))
	f.Add(sse(ping, start, textStart, stop0, endTurn, end))
	f.Add(sse(start, `{"type":"error","error":{"type":"overloaded_error","message":"sorry"}}`))
	f.Add("data: {}\n\n: \r\n\r\ndata:null\n\n")
	f.Fuzz(func(t *testing.T, body string) {
		var seen modeltest.Fragments
		got, err := streaming(strings.NewReader(body)).Reply(t.Context(), request("hi"), seen.Add)
		if err != nil {
			if _, ok := errors.AsType[*model.Error](err); !ok {
				t.Errorf("%v is not an *Error", err)
			}
			return
		}
		if err := seen.Match(got); err != nil {
			t.Error(err)
		}
		ids := make(map[string]bool)
		for _, p := range got.Content {
			switch {
			case p.Type == model.PartText && strings.TrimSpace(p.Text) != "":
			case p.Type == model.PartToolUse && p.Name != "" && p.Input[0] == '{' && !ids[p.ID]:
				ids[p.ID] = true
			default:
				t.Errorf("the reply holds %+v", p)
			}
		}
	})
}
