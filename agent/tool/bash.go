package tool

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/runner"
)

//go:embed bash.md
var bashText string

// Limits of the bash tool.
const (
	bashTimeout    = 2 * time.Minute
	maxBashTimeout = time.Hour
	maxCommand     = 256 << 10
	maxShown       = 64 << 10
)

type bash struct{}

type bashInput struct {
	Command    string `json:"command"`
	TimeoutMS  int64  `json:"timeout_ms"`
	Background bool   `json:"run_in_background"`
}

func (bash) Spec() model.Tool {
	return model.Tool{Name: "bash", Description: bashText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"command":{"type":"string","description":"The command to run."},` +
		`"timeout_ms":{"type":"integer","minimum":0,"description":"How long it may take; 120000 if not given."},` +
		`"run_in_background":{"type":"boolean","description":"Leave it running and return at once."}},` +
		`"required":["command"],"additionalProperties":false}`)}
}

func (bash) Call(input json.RawMessage) (runner.Call, error) {
	var in bashInput
	if err := decode(input, &in); err != nil {
		return runner.Call{}, err
	}
	timeout := time.Duration(in.TimeoutMS) * time.Millisecond
	switch {
	case strings.TrimSpace(in.Command) == "":
		return runner.Call{}, errors.New("command is empty")
	case len(in.Command) > maxCommand:
		return runner.Call{}, fmt.Errorf("command is %d bytes, at most %d are taken; write a script file instead", len(in.Command), maxCommand)
	case in.TimeoutMS < 0 || in.TimeoutMS > maxBashTimeout.Milliseconds():
		return runner.Call{}, fmt.Errorf("timeout_ms must be between 0 and %d", maxBashTimeout.Milliseconds())
	case strings.IndexByte(in.Command, 0) >= 0:
		return runner.Call{}, errors.New("command contains a NUL byte")
	}
	if in.Background {
		return runner.Call{Kind: dormouse.OpTask, Exec: &runner.Exec{Command: in.Command}}, nil
	}
	if timeout == 0 {
		timeout = bashTimeout
	}
	return runner.Call{Kind: dormouse.OpExec, Exec: &runner.Exec{Command: in.Command, Timeout: timeout}}, nil
}

func (bash) Result(r runner.Result) (string, bool) {
	var b strings.Builder
	b.WriteString(shorten(r.Output, r.Omitted))
	note := func(format string, args ...any) {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, format, args...)
	}
	if r.NewShell {
		note("[this is a new shell: the working directory is the workspace again, and variables are gone]\n")
	}
	switch {
	case r.Error != "":
		note("[%s]", r.Error)
	case r.Log != "":
		note("[running in the background as process %d; its output goes to %s]", r.PID, r.Log)
	case r.TimedOut:
		note("[timed out and was killed]")
	case r.Killed:
		note("[killed]")
	case r.Exit != 0:
		note("[exit status %d]", r.Exit)
	}
	return b.String(), r.Error != "" || r.TimedOut || r.Killed || r.Exit != 0
}

// shorten shows the head and the tail of what is too long for a model.
func shorten(out []byte, omitted int64) string {
	if len(out) <= maxShown && omitted == 0 {
		return string(out)
	}
	head, tail := out[:len(out)/2], out[len(out)/2:]
	if len(out) > maxShown {
		head, tail = out[:maxShown/2], out[len(out)-maxShown/2:]
	}
	left := omitted + int64(len(out)-len(head)-len(tail))
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", head, left, tail)
}
