// Package runner is the protocol between a server and the program inside a
// sandbox, both ends of it.
//
// The runner keeps what it was asked under the op id: asked twice, it acts
// once; asked later, it says running, finished or never seen. It refuses an
// epoch older than the newest it has met for its (session, generation), so
// that nothing a dead server sent can take effect after a new one has spoken.
package runner

import (
	"errors"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Errors of the protocol.
var (
	// ErrStale: the runner has met a newer epoch; the sender must stop.
	ErrStale = errors.New("runner knows a newer epoch")
	// ErrForeign: the runner serves another session or generation.
	ErrForeign = errors.New("runner serves another sandbox")
	// ErrUnreachable: no runner is connected just now.
	ErrUnreachable = errors.New("runner is not connected")
	// ErrNeverSeen: the runner was never asked for this op.
	ErrNeverSeen = errors.New("runner never saw this op")
)

// Fence is what every frame to a runner carries.
type Fence struct {
	Session    dormouse.SessionID `json:"session"`
	Generation uint64             `json:"generation"`
	Epoch      uint64             `json:"epoch"`
}

// Call is an op as a runner is asked for it. Exactly one of Exec, Write and
// Read is set, by Kind.
type Call struct {
	Op    dormouse.OpID   `json:"op"`
	Kind  dormouse.OpKind `json:"kind"`
	Exec  *Exec           `json:"exec,omitempty"`
	Write *Write          `json:"write,omitempty"`
	Read  *Read           `json:"read,omitempty"`
}

// Exec is a shell command. As a dormouse.OpTask it is left running and its
// result says only that it started.
type Exec struct {
	Command string        `json:"command"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// Shell names the shell that runs the command. It lives on, and with it its
	// directory, its variables and its jobs, from command to command; two of one
	// name run one after the other. Without a name the command has a shell of its
	// own, and so it does where there is no bash. A task always has its own.
	Shell string `json:"shell,omitempty"`
}

// Write replaces or creates a file, whole or not at all.
type Write struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
}

// Read reads a file, or Limit bytes of it from Offset.
type Read struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"`
	Limit  int64  `json:"limit,omitempty"`
}

// Result is how a call ended.
type Result struct {
	// Exit is the exit code of an exec, 128+n after signal n.
	Exit int `json:"exit"`
	// Output is what the command printed, or the file's bytes. Of more than the
	// runner keeps, it is the head and the tail.
	Output []byte `json:"output,omitempty"`
	// Omitted counts the bytes between head and tail.
	Omitted int64 `json:"omitted,omitempty"`
	// Error says why a file call failed or a command could not be started.
	Error string `json:"error,omitempty"`
	// TimedOut and Killed say who ended the command.
	TimedOut bool `json:"timed_out,omitempty"`
	Killed   bool `json:"killed,omitempty"`
	// NewShell says that the command was the first of a shell which took the
	// place of another of its name: directory, variables and jobs of that are gone.
	NewShell bool `json:"new_shell,omitempty"`
	// Size is the whole file's size for a read.
	Size int64 `json:"size,omitempty"`
	// PID and Log belong to a task: its process and the file its output goes to.
	PID int    `json:"pid,omitempty"`
	Log string `json:"log,omitempty"`
}

// State is what a runner knows of an op.
type State string

// The states.
const (
	NeverSeen State = "never"
	Running   State = "running"
	Finished  State = "finished"
)

// Report is a runner's answer about one op.
type Report struct {
	Op     dormouse.OpID `json:"op"`
	State  State         `json:"state"`
	Result *Result       `json:"result,omitempty"`
}
