package scripted_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/model/scripted"
)

func serve(t *testing.T, o scripted.Options) (*scripted.Server, string) {
	t.Helper()
	s := scripted.NewServer(o)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

// post sends body as a client that is not ours would.
func post(t *testing.T, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/any/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const prompt = `{"model":"m","max_tokens":9,"stream":%STREAM%,"messages":[{"role":"user","content":"SCRIPT[{\"text\":\"hello you\",\"chunks\":2,\"tool\":\"bash\",\"input\":{\"command\":\"ls\"}}]"}]}`

func TestStreamIsTheOneOfTheMessagesAPI(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	status, header, body := post(t, url, strings.ReplaceAll(prompt, "%STREAM%", "true"))
	if status != http.StatusOK || header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("status %d, type %q", status, header.Get("Content-Type"))
	}
	want := `event: message_start
data: {"type":"message_start","message":{"id":"ID","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":20,"output_tokens":1}}}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hell"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"o you"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"ID","name":"bash","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"comman"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"d\":\"ls\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":8}}

event: message_stop
data: {"type":"message_stop"}

`
	if diff := cmp.Diff(want, anonymous(body)); diff != "" {
		t.Error(diff)
	}
}

func TestReplyWithoutStreamIsOneDocument(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	_, _, body := post(t, url, strings.ReplaceAll(prompt, "%STREAM%", "false"))
	want := `{"id":"ID","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello you"},{"type":"tool_use","id":"ID","name":"bash","input":{"command":"ls"}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":20,"output_tokens":8}}`
	if diff := cmp.Diff(want, anonymous(body)); diff != "" {
		t.Error(diff)
	}
}

// anonymous replaces the ids, which follow from the whole request.
func anonymous(s string) string {
	for _, prefix := range []string{"msg_", "toolu_"} {
		for {
			i := strings.Index(s, `"`+prefix)
			if i < 0 {
				break
			}
			j := strings.Index(s[i+1:], `"`)
			s = s[:i+1] + "ID" + s[i+1+j:]
		}
	}
	return s
}

func TestInvalidRequestsAreRefusedAsTheProviderDoes(t *testing.T) {
	s, url := serve(t, scripted.Options{})
	bodies := map[string]string{
		"not JSON":               `{`,
		"no max_tokens":          `{"model":"m","messages":[{"role":"user","content":"a"}]}`,
		"no model":               `{"max_tokens":1,"messages":[{"role":"user","content":"a"}]}`,
		"no messages":            `{"model":"m","max_tokens":1,"messages":[]}`,
		"empty text":             `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":""}]}`,
		"unanswered tool use":    `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"u","name":"n","input":{}}]},{"role":"user","content":"b"}]}`,
		"two tools of one name":  `{"model":"m","max_tokens":1,"tools":[{"name":"a","input_schema":{}},{"name":"a","input_schema":{}}],"messages":[{"role":"user","content":"a"}]}`,
		"a tool without schema":  `{"model":"m","max_tokens":1,"tools":[{"name":"a"}],"messages":[{"role":"user","content":"a"}]}`,
		"content that is number": `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":3}]}`,
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			status, _, got := post(t, url, body)
			if status != http.StatusBadRequest || !strings.Contains(got, `{"type":"error","error":{"type":"invalid_request_error","message":`) {
				t.Errorf("status %d: %s", status, got)
			}
		})
	}
	if c := s.Calls(); c.Requests != len(bodies) || len(c.Refused) != len(bodies) || c.Effects != 0 {
		t.Errorf("the record says %+v", c)
	}
}

func TestTextAloneIsContentOfMessagesAndResults(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	status, _, got := post(t, url, `{"model":"m","max_tokens":1,"system":"be brief","messages":[{"role":"user","content":"SCRIPT[{\"tool\":\"n\"},{\"text\":\"second\"}]"},
		{"role":"assistant","content":[{"type":"tool_use","id":"u","name":"n","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"u","content":"fine"}]}]}`)
	if status != http.StatusOK || !strings.Contains(got, `"text":"second"`) {
		t.Errorf("status %d: %s", status, got)
	}
}

func TestScriptedErrorsHaveTheProvidersShape(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	for status, kind := range map[string]string{
		"400": "invalid_request_error", "401": "authentication_error", "403": "permission_error", "404": "not_found_error",
		"413": "request_too_large", "429": "rate_limit_error", "500": "api_error", "529": "overloaded_error",
	} {
		got, header, body := post(t, url, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"SCRIPT[{\"error\":`+status+`,\"retry_after_ms\":1200}]"}]}`)
		if want := `{"type":"error","error":{"type":"` + kind + `","message":"scripted ` + status + `"}}`; body != want {
			t.Errorf("body of %d is %s, want %s", got, body, want)
		}
		if header.Get("Retry-After") != "2" {
			t.Errorf("retry-after of %d is %q", got, header.Get("Retry-After"))
		}
	}
}

func TestRecordIsServed(t *testing.T) {
	s, url := serve(t, scripted.Options{Keyed: true})
	body := strings.ReplaceAll(prompt, "%STREAM%", "true")
	_, _, first := post(t, url, body, "Idempotency-Key", "op_1")
	_, _, second := post(t, url, body, "Idempotency-Key", "op_1")
	if first != second {
		t.Error("the second answer is not that of the first")
	}
	post(t, url, body, "Idempotency-Key", "op_2")
	var got scripted.Calls
	if err := json.Unmarshal([]byte(get(t, url+"/_calls")), &got); err != nil {
		t.Fatal(err)
	}
	want := scripted.Calls{
		Count: scripted.Count{Requests: 3, Replies: 3, Effects: 2},
		Keys: map[string]scripted.Count{
			"op_1": {Requests: 2, Replies: 2, Effects: 1},
			"op_2": {Requests: 1, Replies: 1, Effects: 1},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, s.Calls()); diff != "" {
		t.Error(diff)
	}
}

func TestModelsAreListed(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	if got := get(t, url+"/v1/models"); !strings.Contains(got, `"id":"scripted"`) {
		t.Error(got)
	}
}

func TestKeyedCallOutlivesACallerThatGoesAway(t *testing.T) {
	s, url := serve(t, scripted.Options{Keyed: true})
	body := `{"model":"m","max_tokens":1,"stream":true,"messages":[{"role":"user","content":"SCRIPT[{\"text\":\"abcdef\",\"chunks\":2,\"chunk_delay_ms\":600000}]"}]}`
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/messages", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header.Set("Idempotency-Key", "op_1")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = res.Body.Close()
	if _, _, got := post(t, url, body, "Idempotency-Key", "op_1"); !strings.Contains(got, "message_stop") {
		t.Errorf("the second answer is not whole: %s", got)
	}
	if c := s.Calls(); c.Effects != 1 || c.Requests != 2 {
		t.Errorf("the record says %+v", c)
	}
}
