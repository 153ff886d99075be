package tool_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/runner"
)

var all = []dormouse.ToolConfig{{Name: "bash"}, {Name: "read"}, {Name: "write"}}

// everything enables every tool.
func everything() []dormouse.ToolConfig {
	var all []dormouse.ToolConfig
	for _, name := range tool.Builtin().Names() {
		all = append(all, dormouse.ToolConfig{Name: name})
	}
	return all
}

func TestAToolSaysWhatIsWrongWithItsInput(t *testing.T) {
	for _, test := range []struct{ tool, input, says string }{
		{"bash", `{}`, "command is empty"},
		{"bash", `{"command":"   "}`, "command is empty"},
		{"bash", `{"command":1}`, "does not fit"},
		{"bash", `{"cmd":"ls"}`, "unknown field"},
		{"bash", `{"command":"ls"} {}`, "more than one"},
		{"bash", `{"command":"ls","timeout_ms":-1}`, "timeout_ms"},
		{"bash", `{"command":"ls","timeout_ms":99999999999}`, "timeout_ms"},
		{"bash", `{"command":"a\u0000b"}`, "NUL"},
		{"bash", `{"command":"` + strings.Repeat("x", 300<<10) + `"}`, "at most"},
		{"read", `{"file_path":""}`, "file_path is empty"},
		{"bash", `{"restart":false}`, "command is empty"},
		{"bash", `{"command":"ls","run_in_background":true}`, "unknown field"},
		{"task", `{}`, "command is empty"},
		{"task", `{"command":"a\u0000b"}`, "NUL"},
		{"read", `{"file_path":"a","view_range":[1]}`, "two numbers"},
		{"read", `{"file_path":"a","view_range":[]}`, "two numbers"},
		{"read", `{"file_path":"a","view_range":[0,1]}`, "begin at 1"},
		{"read", `{"file_path":"a","view_range":[3,2]}`, "begin at 1"},
		{"read", `{"file_path":"a","view_range":[1.5,2]}`, "does not fit"},
		{"write", `{"file_path":"a"}`, "content is needed"},
		{"edit", `{"file_path":"a","old_string":"x"}`, "are needed"},
		{"edit", `{"file_path":"a","new_string":"x"}`, "are needed"},
		{"edit", `{"file_path":"a","old_string":"","new_string":"x"}`, "old_string is empty"},
		{"edit", `{"file_path":"a","old_string":"x","new_string":"x"}`, "the same"},
		{"edit", `{"file_path":"a","old_string":"x","new_string":"` + strings.Repeat("x", 9<<20) + `"}`, "at most"},
		{"glob", `{}`, "pattern is empty"},
		{"glob", `{"pattern":"*","path":"a\u0000b"}`, "path contains a NUL"},
		{"grep", `{"pattern":"` + strings.Repeat("x", 2000) + `"}`, "longer than"},
		{"grep", `{"pattern":"a","flags":"i"}`, "unknown field"},
		{"write", `{"content":"x"}`, "file_path is empty"},
		{"write", `{"file_path":"a","content":"` + strings.Repeat("x", 9<<20) + `"}`, "at most"},
		{"question_ask", `{"question":" "}`, "question is empty"},
		{"question_ask", `{"question":"q","expires_in_seconds":99999999}`, "expires_in_seconds"},
		{"wakeup_schedule", `{"prompt":"p"}`, "either in_seconds or cron"},
		{"wakeup_schedule", `{"prompt":"p","in_seconds":1,"cron":"* * * * *"}`, "either in_seconds or cron"},
		{"wakeup_schedule", `{"prompt":"","in_seconds":1}`, "empty"},
		{"wakeup_schedule", `{"prompt":"p","in_seconds":-1}`, "in_seconds"},
		{"wakeup_cancel", `{"id":"x"}`, "wakeup_schedule"},
		{"child_spawn", `{"prompt":""}`, "empty"},
		{"child_message", `{"child":"x","prompt":"p"}`, "child_spawn"},
		{"child_wait", `{"child":"sesn_a","timeout_seconds":99999}`, "timeout_seconds"},
		{"child_read", `{"child":"sesn_a","last":101}`, "between 1 and 100"},
		{"child_terminate", `{}`, "child_spawn"},
		{"nosuch", `{}`, "no tool named"},
	} {
		_, err := tool.Builtin().Call(everything(), test.tool, json.RawMessage(test.input))
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s %.60s: got %v, want %q", test.tool, test.input, err, test.says)
		}
	}
}

func TestAToolThatIsNotEnabledIsNotThere(t *testing.T) {
	if _, err := tool.Builtin().Call(all[:1], "write", json.RawMessage(`{"file_path":"a","content":"b"}`)); err == nil {
		t.Error("write ran without being enabled")
	}
}

func TestTheSameInputIsTheSameCall(t *testing.T) {
	one, err := tool.Builtin().Call(all, "bash", json.RawMessage(`{"command":"ls","timeout_ms":5}`))
	if err != nil {
		t.Fatal(err)
	}
	two, err := tool.Builtin().Call(all, "bash", json.RawMessage(`{"timeout_ms":5, "command":"ls"}`))
	if err != nil || string(dormouse.Encode(one)) != string(dormouse.Encode(two)) {
		t.Errorf("%v and %v differ, %v", one, two, err)
	}
}

func TestResultsAreWordedForTheModel(t *testing.T) {
	for _, test := range []struct {
		tool   string
		r      runner.Result
		says   string
		failed bool
	}{
		{"bash", runner.Result{Output: []byte("hi\n")}, "hi\n", false},
		{"bash", runner.Result{}, "(no output)", false},
		{"bash", runner.Result{Output: []byte("oops"), Exit: 3}, "oops\n[exit status 3]", true},
		{"bash", runner.Result{TimedOut: true, Exit: 137}, "[timed out and was killed]", true},
		{"bash", runner.Result{Note: "this is a new shell"}, "[this is a new shell]\n", false},
		{"task", runner.Result{PID: 7, Log: "/x/log"}, "[running in the background as process 7; its output goes to /x/log]", false},
		{"task", runner.Result{Error: "no"}, "[no]", true},
		{"bash", runner.Result{Output: []byte("a\x00\xff")}, "a\uFFFD\uFFFD", false},
		{"read", runner.Result{Error: "no such file"}, "no such file", true},
		{"read", runner.Result{Output: []byte("abc\n\nd"), Line: 9}, "     9\tabc\n    10\t\n    11\td", false},
		{"read", runner.Result{Output: []byte("abc\nde"), Line: 9, More: true}, "     9\tabc\n[… read on with view_range [10, -1] …]", false},
		{"read", runner.Result{Output: []byte("abc\n"), Line: 9, More: true}, "     9\tabc\n[… read on with view_range [10, -1] …]", false},
		{"read", runner.Result{Output: []byte("abc"), Line: 9, More: true}, "     9\tabc\n[… line 9 is cut off here …]", false},
		{"read", runner.Result{Line: 1}, "(the file is empty)", false},
		{"read", runner.Result{Media: runner.MediaDirectory, Output: []byte("a\nb/\n"), Note: "more"}, "a\nb/\n[more]", false},
		{"read", runner.Result{Media: runner.MediaDirectory}, "(the directory is empty)", false},
		{"edit", runner.Result{Count: 1}, "replaced it in one place", false},
		{"edit", runner.Result{Count: 3}, "replaced it in 3 places", false},
		{"edit", runner.Result{Error: "occurs 2 times"}, "occurs 2 times", true},
		{"glob", runner.Result{}, "(no file fits)", false},
		{"grep", runner.Result{Output: []byte("a:1:b\n"), Note: "stopped"}, "a:1:b\n[stopped]", false},
		{"grep", runner.Result{Note: "stopped"}, "[stopped]", false},
		{"write", runner.Result{Size: 12}, "wrote 12 bytes", false},
	} {
		content, failed := tool.Builtin().Result(test.tool, test.r)
		if len(content) != 1 || content[0].Text != test.says || failed != test.failed {
			t.Errorf("%s %+v: %q %v", test.tool, test.r, content, failed)
		}
	}
}

func TestALongOutputIsShownByHeadAndTail(t *testing.T) {
	out := strings.Repeat("ä", 60_000) + strings.Repeat("ö", 60_000)
	for _, test := range []struct {
		r    runner.Result
		says string
	}{
		{runner.Result{Output: []byte(out), File: "/tmp/all"}, "all of it is in /tmp/all"},
		{runner.Result{Output: []byte(out), File: "/tmp/all", Omitted: 5}, "it is in /tmp/all, but for 5 bytes"},
		{runner.Result{Output: []byte(out)}, "the rest was not kept"},
	} {
		content, _ := tool.Builtin().Result("bash", test.r)
		text := content[0].Text
		if n := utf8.RuneCountInString(text); n > 21_000 || !strings.HasPrefix(text, "ää") || !strings.HasSuffix(text, "öö") || !strings.Contains(text, test.says) {
			t.Errorf("%d characters, and not %q", n, test.says)
		}
	}
	whole := strings.Repeat("ä", tool.MaxText)
	if content, _ := tool.Builtin().Result("bash", runner.Result{Output: []byte(whole)}); content[0].Text != whole {
		t.Error("what fits is not shown whole")
	}
}

func TestAnImageIsShownAsOne(t *testing.T) {
	content, failed := tool.Builtin().Result("read", runner.Result{Media: runner.MediaPNG, Output: []byte("\x89PNG")})
	if failed || len(content) != 1 || content[0].Type != "image" || string(content[0].Source) != `{"type":"base64","media_type":"image/png","data":"iVBORw=="}` {
		t.Errorf("%+v, %v", content, failed)
	}
	if err := dormouse.ValidateContent(content); err != nil {
		t.Error(err)
	}
}

// What a sandbox answers may be anything.
func FuzzResult(f *testing.F) {
	f.Add("read", []byte("a\nb"), "image/png", "", int64(1), true)
	f.Add("bash", []byte("a"), "", "note", int64(0), false)
	f.Add("read", bytes.Repeat([]byte("\n"), 100_000), "", "", int64(1)<<62, true)
	f.Fuzz(func(t *testing.T, name string, out []byte, media, note string, n int64, more bool) {
		if !tool.Builtin().Has(name) {
			return
		}
		r := runner.Result{Output: out, Media: media, Note: note, Error: note, Line: n, Size: n, Omitted: n, More: more, File: note, Log: note}
		for _, r.Error = range []string{"", note} {
			content, _ := tool.Builtin().Result(name, r)
			for _, b := range content {
				if n := utf8.RuneCountInString(b.Text); n > tool.MaxText+22_000 || dormouse.ValidateText(b.Text) != nil {
					t.Errorf("%s shows %d characters", name, n)
				}
			}
		}
	})
}

func TestInputsAreThoseOfTheToolset(t *testing.T) {
	for name, want := range map[string]string{
		"bash":  `{"properties":["command","restart","timeout_ms"],"required":null}`,
		"read":  `{"properties":["file_path","view_range"],"required":["file_path"]}`,
		"write": `{"properties":["content","file_path"],"required":["file_path","content"]}`,
		"edit":  `{"properties":["file_path","new_string","old_string","replace_all"],"required":["file_path","old_string","new_string"]}`,
		"glob":  `{"properties":["path","pattern"],"required":["pattern"]}`,
		"grep":  `{"properties":["path","pattern"],"required":["pattern"]}`,
	} {
		specs := tool.Builtin().Specs(dormouse.AgentConfig{Tools: []dormouse.ToolConfig{{Name: name}}})
		var schema struct {
			Properties map[string]any `json:"properties"`
			Required   []string       `json:"required"`
			More       *bool          `json:"additionalProperties"`
		}
		if err := json.Unmarshal(specs[0].InputSchema, &schema); err != nil {
			t.Fatal(err)
		}
		got := string(dormouse.Encode(map[string]any{"properties": slices.Sorted(maps.Keys(schema.Properties)), "required": schema.Required}))
		if got != want || schema.More == nil || *schema.More {
			t.Errorf("%s takes %s, want %s", name, got, want)
		}
	}
}

func FuzzCall(f *testing.F) {
	f.Add("bash", []byte(`{"command":"ls"}`))
	f.Add("bash", []byte(`{"restart":true}`))
	f.Add("read", []byte(`{"file_path":"a","view_range":[1,-1]}`))
	f.Add("edit", []byte(`{"file_path":"a","old_string":"b","new_string":"","replace_all":true}`))
	f.Add("glob", []byte(`{"pattern":"**/*.go","path":"a"}`))
	f.Add("grep", []byte(`{"pattern":"a|b"}`))
	f.Add("write", []byte(`{"file_path":"a","content":"b"}`))
	f.Add("question_ask", []byte(`{"question":"which?","options":["a"],"expires_in_seconds":9}`))
	f.Add("wakeup_schedule", []byte(`{"prompt":"again","cron":"* * * * *"}`))
	f.Add("child_spawn", []byte(`{"prompt":"do","tools":["bash"]}`))
	f.Add("child_wait", []byte(`{"child":"sesn_a","timeout_seconds":3}`))
	f.Fuzz(func(t *testing.T, name string, input []byte) {
		asks, err := tool.Builtin().Call(everything(), name, input)
		asks.Call.Op = "op_1"
		if err == nil && asks.Action == nil && asks.Call.Validate() != nil {
			t.Errorf("%s %q was accepted and asks for nothing", name, input)
		}
	})
}
