package tool_test

import (
	"encoding/json"
	"strings"
	"testing"

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
		{"read", `{"file_path":"a","offset":-1}`, "negative"},
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
		{"bash", runner.Result{PID: 7, Log: "/x/log"}, "[running in the background as process 7; its output goes to /x/log]", false},
		{"bash", runner.Result{Output: []byte("a\x00\xff")}, "a\uFFFD\uFFFD", false},
		{"read", runner.Result{Error: "no such file"}, "no such file", true},
		{"read", runner.Result{Output: []byte("abc"), Size: 10}, "abc\n[… the file has 10 bytes; 7 are not shown …]", false},
		{"write", runner.Result{Size: 12}, "wrote 12 bytes", false},
	} {
		content, failed := tool.Builtin().Result(test.tool, test.r)
		if len(content) != 1 || content[0].Text != test.says || failed != test.failed {
			t.Errorf("%s %+v: %q %v", test.tool, test.r, content, failed)
		}
	}
}

func FuzzCall(f *testing.F) {
	f.Add("bash", []byte(`{"command":"ls"}`))
	f.Add("read", []byte(`{"file_path":"a","offset":1,"limit":2}`))
	f.Add("write", []byte(`{"file_path":"a","content":"b"}`))
	f.Add("question_ask", []byte(`{"question":"which?","options":["a"],"expires_in_seconds":9}`))
	f.Add("wakeup_schedule", []byte(`{"prompt":"again","cron":"* * * * *"}`))
	f.Add("child_spawn", []byte(`{"prompt":"do","tools":["bash"]}`))
	f.Add("child_wait", []byte(`{"child":"sesn_a","timeout_seconds":3}`))
	f.Fuzz(func(t *testing.T, name string, input []byte) {
		asks, err := tool.Builtin().Call(everything(), name, input)
		if call := asks.Call; err == nil && asks.Wish == nil && call.Exec == nil && call.Read == nil && call.Write == nil {
			t.Errorf("%s %q was accepted and asks for nothing", name, input)
		}
	})
}
