package rest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
)

var seeds = []string{
	``, `{}`, `null`, `[]`, `{"title":"x"}`, `{"title":1}`, `{"title":"a","title":"b"}`, `{} {}`, "{\"title\":\"\\u0000\"}", "{\"title\":\"\xff\"}",
	`{"prompt":"hi","prompt_id":"a"}`, `{"prompt":[{"type":"text","text":"hi"}]}`, `{"content":"hi","id":"x"}`, `{"content":[{"type":"image","source":{"b":1,"a":2}}]}`,
	`{"tools":[{"name":"bash","permission":"ask"}],"custom_tools":[{"name":"a","input_schema":{}}],"recovery":"ask","sleep_after":"5m","warm":false}`,
	`{"tool_use_id":"sevt_a","result":"allow"}`, `{"tool_use_id":"sevt_a","result":"deny","deny_message":"x"}`, `{"custom_tool_use_id":"sevt_a","content":"x","is_error":true}`,
	`{"tool_use_id":"sevt_a","answer":"yes"}`, `{"tool_use_id":"sevt_a","answer":[{"type":"text","text":"yes"}]}`, `{"tool_use_id":"sevt_a","answer":"yes","result":"allow"}`,
	`{"environment":{"image":"debian:12","network":"off","limits":{"cpus":0.5,"memory":536870912,"pids":64,"disk":1073741824,"inodes":4096,"files":1024}}}`,
	`{"environment":{"limits":{"memory":-1,"cpus":1e300}}}`, `{"environment":null}`, `{"environment":{"image":"dir:/etc"},"parent":"sesn_a"}`,
	`{"title":null,"tags":["a","a"],"metadata":{"a":"b","c":null}}`, `{"metadata":null}`, `{"tags":null}`, `{"tags":["a",1]}`, `{"parent":"sesn_a","tags":[],"metadata":{}}`,
	`{"id":"a","label":"b"}`, `{"snapshot":"snap_a","history":true}`, `{"prompt":"sevt_a"}`, `{"keep":3,"older_than":"72h","dry_run":true}`, `{"keep":-1}`, `{"older_than":"-1s"}`,
	`{"in":"10m","prompt":"hi"}`, `{"at":"2030-01-02T03:04:05Z","prompt":"hi","id":"x"}`, `{"at":"9999-12-31T23:59:59-23:59","prompt":"hi"}`,
	`{"cron":"0 9 * * *","prompt":"hi","thread":"sthr_a"}`, `{"in":"1s","cron":"* * * * *","prompt":"hi"}`, `{"in":"9223372036s","prompt":"hi"}`,
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
	like := dormouse.Created{Agent: dormouse.AgentConfig{Name: "a", Model: "m"}, Recovery: dormouse.RecoverAuto}
	s := &Server{}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req createRequest
		if !sound(t, body, decodeJSON(body, &req)) {
			return
		}
		made, err := s.complete(req, like)
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
		v, err := req.verb("sesn_1")
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

func FuzzDecodeDescription(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req describeRequest
		if !sound(t, body, decodeJSON(body, &req)) {
			return
		}
		v, err := req.verb()
		if err != nil {
			if !errors.Is(err, dormouse.ErrInvalid) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		// What is absent stays.
		if (v.Title == nil) != (req.Title == nil) || (v.Tags == nil) != (req.Tags == nil) || (v.Metadata == nil) != (req.Metadata == nil) {
			t.Errorf("%s became %+v", body, v)
		}
	})
}

func FuzzDecodeWakeup(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	f.Fuzz(func(t *testing.T, body []byte) {
		var req wakeupRequest
		if !sound(t, body, decodeJSON(body, &req)) {
			return
		}
		v, err := req.verb("sesn_a", now)
		if err != nil {
			if !errors.Is(err, dormouse.ErrInvalid) && !errors.Is(err, dormouse.ErrTooLarge) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if (v.At.IsZero() && v.In == 0) == (v.Cron == "") || v.In > maxAhead || v.At.After(now.Add(maxAhead)) || v.ID.Validate() != nil || dormouse.ValidateContent(v.Content) != nil {
			t.Errorf("taken: %+v", v)
		}
		if again, err := req.verb("sesn_a", now); err != nil || (again.ID == v.ID) != (req.ID != "") {
			t.Errorf("the name %q gave %s, then %s, %v", req.ID, v.ID, again.ID, err)
		}
	})
}

func FuzzSelection(f *testing.F) {
	for _, q := range []string{
		"", "limit=2&after=sesn_a", "text=a%20b&archived", "tag=a&tag=b", "metadata.k=v&metadata.k%00=v", "metadata.=x", "phase=ready&parent=sesn_a", "limit=1&limit=2", "text=%ff", "%zz", "x=1",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := (call{&door.Call{R: &http.Request{URL: &url.URL{RawQuery: query}}}}).selection()
		if err != nil {
			if status := door.ReplyTo(err).Status; status < 400 || status > 499 {
				t.Errorf("a bad query is the server's fault: %d %v", status, err)
			}
			return
		}
		if q.Limit < 1 || q.Limit > longestPage || len(q.Text) > dormouse.MaxTitle || len(q.Tags) > dormouse.MaxTags || len(q.Metadata) > dormouse.MaxMetadata {
			t.Errorf("taken: %+v", q)
		}
		for _, s := range append([]string{q.Text, string(q.After), string(q.Parent)}, q.Tags...) {
			if err := dormouse.ValidateText(s); err != nil {
				t.Errorf("taken: %q, %v", s, err)
			}
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var take snapshotRequest
		if err := decodeJSON(body, &take); err == nil {
			ask := dormouse.SnapshotAsk{ID: dormouse.SnapshotID(named(dormouse.SnapshotPrefix, "sesn_a", take.ID)), Label: take.Label}
			if err := ask.Validate(); err != nil && door.ReplyTo(err).Status >= 500 {
				t.Errorf("refused with %v", err)
			}
		}
		var back restoreRequest
		if sound(t, body, decodeJSON(body, &back)) {
			if p, err := snapshotID(string(back.Snapshot)); err == nil && p.Validate() != nil {
				t.Errorf("taken: %q", p)
			}
		}
		var prune pruneRequest
		if !sound(t, body, decodeJSON(body, &prune)) {
			return
		}
		keep, err := prune.retention()
		switch {
		case err != nil && !errors.Is(err, dormouse.ErrInvalid):
			t.Errorf("refused with %v", err)
		case err == nil && (keep.MaxAge < 0 || keep.MaxCount < 0):
			t.Errorf("taken: %+v", keep)
		}
	})
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
	for _, v := range []any{
		&createRequest{}, &promptRequest{}, &answerRequest{}, &describeRequest{}, &wakeupRequest{}, &openRequest{}, &interruptRequest{}, &threadRequest{},
		&snapshotRequest{}, &restoreRequest{}, &revertRequest{}, &branchRequest{}, &pruneRequest{},
	} {
		for field := range reflect.TypeOf(v).Elem().Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				t.Errorf("%s has a field without a name", reflect.TypeOf(v))
			}
		}
	}
}
