package v1_test

import (
	"fmt"
	"strings"
	"testing"
)

// What no model takes would stay in the conversation and fail every turn after it.
func TestContentThatNoModelTakesIsRefused(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	for block, want := range map[string]string{
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"not base64!"}}`:   "content[0].source.data: is not base64",
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGVs\nbG8="}}`:    "content[0].source.data: is not base64",
		`{"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"aGk="}}`:         "content[0].source.media_type: must be image/jpeg, image/png, image/gif or image/webp, not \"image/tiff\"",
		`{"type":"document","source":{"type":"base64","media_type":"application/zip","data":"aGk="}}`: "content[0].source.media_type: must be application/pdf, not \"application/zip\"",
		`{"type":"document","source":{"type":"url","url":"file:///etc/passwd"}}`:                      "content[0].source.url: must begin with https:// or http://",
		`{"type":"image","source":{"type":"url","url":"x"}}`:                                          "content[0].source.url: must begin with https:// or http://",
		`{"type":"text","text":" "}`: "content[0].text is empty",
	} {
		status, raw := h.do("POST", "/v1/sessions/"+id+"/events", `{"events":[{"type":"user.message","content":[`+block+`]}]}`)
		if status != 400 || !strings.Contains(raw, strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("%s: got %d %s, want %s", block, status, raw, want)
		}
	}
	h.sends(200, id, `{"type":"user.message","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},
		{"type":"document","source":{"type":"url","url":"https://example.com/a.pdf"}}]}`)
}

func TestRefusalsAreSentences(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	for _, c := range []struct {
		status             int
		method, path, body string
		want               string
	}{
		{404, "GET", "/v1/sessions/sesn_none", "", `session "sesn_none": not found`},
		{404, "POST", "/v1/sessions/sesn_none/events", `{"events":[{"type":"user.interrupt"}]}`, `session "sesn_none": not found`},
		{404, "POST", "/v1/sessions/" + id + "/events", `{"events":[{"type":"user.interrupt","session_thread_id":"sthr_none"}]}`, `events[0]: thread sthr_none: not found`},
		{
			400, "POST", "/v1/sessions/" + id + "/events", `{"events":[{"type":"user.tool_confirmation","tool_use_id":"sevt_1","result":"allow"}]}`,
			`events[0]: no tool call sevt_1 waits for an answer; it was answered, interrupted or never asked`,
		},
		{400, "POST", "/v1/sessions/" + id + "/events", `{"events":[{"type":"user.message","content":[]}]}`, `events[0]: content is empty`},
	} {
		got, _ := h.ask(c.status, c.method, c.path, c.body)["error"].(map[string]any)
		if fmt.Sprint(got["message"]) != c.want {
			t.Errorf("%s: got %s\nwant %s", c.path, got["message"], c.want)
		}
	}
}
