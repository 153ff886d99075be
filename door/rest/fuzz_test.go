package rest

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
)

var seeds = []string{
	``, `{}`, `null`, `[]`, `{"title":"x"}`, `{"title":1}`, `{"title":"a","title":"b"}`, `{} {}`, "{\"title\":\"\\u0000\"}", "{\"title\":\"\xff\"}",
	`{"prompt":"hi","prompt_id":"a"}`, `{"prompt":[{"type":"text","text":"hi"}]}`, `{"content":"hi","id":"x"}`, `{"content":[{"type":"image","source":{"b":1,"a":2}}]}`,
	`{"tools":[{"name":"bash","permission":"ask"}],"custom_tools":[{"name":"a","input_schema":{}}],"recovery":"ask","sleep_after":"5m","warm":false}`,
	`{"tool_use_id":"sevt_a","result":"allow"}`, `{"tool_use_id":"sevt_a","result":"deny","deny_message":"x"}`, `{"custom_tool_use_id":"sevt_a","content":"x","is_error":true}`,
}

// sound checks what must be true of whatever the decoder says.
func sound(t *testing.T, body []byte, err error) bool {
	t.Helper()
	if err != nil {
		if status := door.ReplyTo(err).Status; status < 400 || status > 499 {
			t.Errorf("a bad body is the server's fault: %d %v", status, err)
		}
		return false
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		t.Errorf("taken: %q", body)
	}
	return true
}

func FuzzDecodeCreate(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	s := &Server{Config: Config{Agent: dormouse.AgentConfig{Name: "a", Model: "m"}}}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req createRequest
		if !sound(t, body, decodeJSON(body, &req)) {
			return
		}
		made, err := s.describe(req)
		if err == nil {
			err = made.Validate()
		} else if !errors.Is(err, dormouse.ErrInvalid) && !errors.Is(err, dormouse.ErrTooLarge) {
			t.Errorf("refused with %v", err)
		} else {
			return
		}
		if err != nil {
			t.Errorf("taken, though %v", err)
		}
	})
}

func FuzzDecodePrompt(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req promptRequest
		if !sound(t, body, decodeJSON(body, &req)) {
			return
		}
		blocks, err := content("content", req.Content)
		if err != nil {
			if !errors.Is(err, dormouse.ErrInvalid) && !errors.Is(err, dormouse.ErrTooLarge) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if err := dormouse.ValidateContent(blocks); err != nil {
			t.Errorf("taken, though %v", err)
		}
		// What was decoded, sent again, is the same prompt.
		first, err := digest(blocks)
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(blocks)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err = content("content", again)
		if err != nil {
			t.Fatalf("not taken again: %v", err)
		}
		if second, err := digest(blocks); err != nil || second != first {
			t.Errorf("%s became %s, %v", first, second, err)
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req answerRequest
		if !sound(t, body, decodeJSON(body, &req)) {
			return
		}
		v, err := req.verb()
		if err != nil {
			return
		}
		answers := 0
		for _, given := range []bool{v.Allow, v.Deny, len(v.Content) > 0} {
			if given {
				answers++
			}
		}
		if answers != 1 || v.Use.Validate() != nil {
			t.Errorf("taken: %+v", v)
		}
	})
}

func TestHasNULSeesEscapesAndNothingElse(t *testing.T) {
	for body, want := range map[string]bool{
		`{"a":"\u0000"}`: true, `{"a":"\\u0000"}`: false, `{"a":"\\\u0000"}`: true, `{"a":"u0000"}`: false, `\`: false, `\\`: false, ``: false,
	} {
		if got := hasNUL([]byte(body)); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}

func TestDigestIsOfTheMeaning(t *testing.T) {
	name := func(raw string) dormouse.Digest {
		t.Helper()
		blocks, err := content("content", json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		d, err := digest(blocks)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	same := []string{`[{"type":"image","source":{"type":"url","n":1.0,"url":"x"}}]`, `[{"source": {"url":"\u0078","n":1.0, "type":"url"},"type":"image"}]`}
	if name(same[0]) != name(same[1]) {
		t.Error("the spelling makes another body")
	}
	if name(`"hi"`) != name(`[{"type":"text","text":"hi"}]`) || name(`"hi"`) == name(`"ho"`) {
		t.Error("text is not what its block is")
	}
}

func TestRequestsNameAllTheirFields(t *testing.T) {
	for _, v := range []any{&createRequest{}, &promptRequest{}, &answerRequest{}} {
		for name := range fieldNames(v) {
			if name == "" || name == "-" {
				t.Errorf("%s has a field without a name", reflect.TypeOf(v))
			}
		}
	}
}
