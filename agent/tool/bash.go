package tool

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

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
	maxPreview     = 20_000
	maxNote        = 1000
)

type bash struct{}

type bashInput struct {
	Command   string `json:"command,omitempty" jsonschema:"The command to run."`
	Restart   bool   `json:"restart,omitempty" jsonschema:"Start a new shell first. Without a command that is all."`
	TimeoutMS int64  `json:"timeout_ms,omitempty" jsonschema:"How long it may take; 120000 if not given."`
}

var bashSchema = schemaFor[bashInput](minimum("timeout_ms", 0))

func (bash) Spec() model.Tool {
	return model.Tool{Name: "bash", Description: bashText, InputSchema: bashSchema}
}

func (bash) Call(input json.RawMessage) (runner.Call, error) {
	var in bashInput
	if err := decode(input, &in); err != nil {
		return runner.Call{}, err
	}
	if in.TimeoutMS < 0 || in.TimeoutMS > maxBashTimeout.Milliseconds() {
		return runner.Call{}, fmt.Errorf("timeout_ms must be between 0 and %d", maxBashTimeout.Milliseconds())
	}
	if in.Restart && strings.TrimSpace(in.Command) == "" {
		return runner.Call{Kind: dormouse.OpExec, Exec: &runner.Exec{Restart: true}}, nil
	}
	if err := checkCommand(in.Command); err != nil {
		return runner.Call{}, err
	}
	timeout := time.Duration(in.TimeoutMS) * time.Millisecond
	if timeout == 0 {
		timeout = bashTimeout
	}
	return runner.Call{Kind: dormouse.OpExec, Exec: &runner.Exec{
		Command: in.Command, Timeout: timeout, Restart: in.Restart, Keep: MaxText,
	}}, nil
}

func checkCommand(command string) error {
	switch {
	case strings.TrimSpace(command) == "":
		return errors.New("command is empty")
	case len(command) > maxCommand:
		return fmt.Errorf("command is %d bytes, at most %d are taken; write a script file instead", len(command), maxCommand)
	case strings.IndexByte(command, 0) >= 0:
		return errors.New("command contains a NUL byte")
	}
	return nil
}

func (bash) Result(r runner.Result) ([]dormouse.Block, bool) {
	var b strings.Builder
	b.WriteString(preview(r))
	if r.NewShell {
		note(&b, "this is a new shell: the working directory is the workspace again, and variables are gone")
		b.WriteByte('\n')
	}
	if r.Note != "" {
		note(&b, "%s", truncate(r.Note, maxNote))
		b.WriteByte('\n')
	}
	switch {
	case r.Error != "":
		note(&b, "%s", truncate(r.Error, maxPreview))
	case r.TimedOut:
		note(&b, "timed out and was killed")
	case r.Killed:
		note(&b, "killed")
	case r.Exit != 0:
		note(&b, "exit status %d", r.Exit)
	}
	return textContent(b.String()), r.Error != "" || r.TimedOut || r.Killed || r.Exit != 0
}

// note appends a line that is not part of the output.
func note(b *strings.Builder, format string, args ...any) {
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "["+format+"]", args...)
}

// preview renders an output. Of a long one it shows the head and the tail, and names
// the file with the rest.
func preview(r runner.Result) string {
	out := dormouse.CleanText(string(r.Output))
	if r.Omitted == 0 && utf8.RuneCountInString(out) <= MaxText {
		return out
	}
	head := truncate(out, maxPreview/2)
	tail := lastRunes(out[len(head):], maxPreview/2)
	where := "the rest was not kept"
	if r.File != "" {
		where = "all of it is in " + r.File
		if r.Omitted > 0 {
			where = fmt.Sprintf("it is in %s, but for %d bytes in its middle that were not kept", r.File, r.Omitted)
		}
	}
	return fmt.Sprintf("%s\n[… the output has %d bytes, of which head and tail are shown; %s …]\n%s",
		head, int64(len(r.Output))+r.Omitted, truncate(where, maxPreview), tail)
}

// lastRunes returns at most the last most characters of a text.
func lastRunes(text string, most int) string {
	i := len(text)
	for ; most > 0 && i > 0; most-- {
		_, n := utf8.DecodeLastRuneInString(text[:i])
		i -= n
	}
	return text[i:]
}
