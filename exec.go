package dormouse

import (
	"fmt"
	"regexp"
	"time"
)

// Bounds of the commands that people and programs run in a session's sandbox.
const (
	// MaxExec bounds a command's text.
	MaxExec = 1 << 20
	// MaxExecs bounds how many are asked for and not answered.
	MaxExecs = 64
	// MaxExecTimeout bounds how long one may take.
	MaxExecTimeout = 24 * time.Hour
)

var shellName = regexp.MustCompile(`^[A-Za-z0-9_.-]{0,128}$`)

// ExecAsk is the payload of exec.asked: a command that a person or a program
// wants run, beside what the agent does.
type ExecAsk struct {
	Exec    EventID `json:"exec"`
	Command string  `json:"command"`
	// TimeoutMS ends it after so long; zero is never.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Shell is the shell that lives on from one command to the next, empty for
	// one of its own.
	Shell string `json:"shell,omitempty"`
}

// Validate refuses a command that cannot be run.
func (a ExecAsk) Validate() error {
	switch {
	case a.Command == "":
		return fmt.Errorf("the command is empty: %w", ErrInvalid)
	case len(a.Command) > MaxExec:
		return fmt.Errorf("the command has %d bytes, more than %d: %w", len(a.Command), MaxExec, ErrTooLarge)
	case !shellName.MatchString(a.Shell):
		return fmt.Errorf("the shell's name may have up to 128 letters, digits, _, . and -: %w", ErrInvalid)
	case a.TimeoutMS < 0 || a.TimeoutMS > MaxExecTimeout.Milliseconds():
		return fmt.Errorf("the timeout must be between 0 and %s: %w", MaxExecTimeout, ErrInvalid)
	}
	return nil
}

// ExecAnswer is the payload of exec.answered, which says how a command ended, and
// of exec.refused, which says why it never began.
type ExecAnswer struct {
	Exec EventID `json:"exec"`
	// Exit is its exit code, 128+n after signal n.
	Exit int `json:"exit"`
	// Output is what it printed: of much, head and tail, and Omitted counts the
	// bytes between them.
	Output  []byte `json:"output,omitempty"`
	Omitted int64  `json:"omitted,omitempty"`
	// Error says why it did not run, or why it is unknown whether it did.
	Error    string `json:"error,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Killed   bool   `json:"killed,omitempty"`
	// Unknown says that it may have run, in part or whole. It is never run again.
	Unknown bool `json:"unknown,omitempty"`
}
