// Package runner is the protocol between a server and the program inside a
// sandbox, both ends of it.
//
// The runner keeps a journal of calls by op id: a call that is sent twice is executed
// once, and the runner reports any op as running, finished or never seen. It refuses
// an epoch older than the newest it has accepted for its (session, generation), so
// that no request of a dead server takes effect after a new server has connected.
package runner

import (
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Errors of the protocol.
var (
	// ErrStale: the runner has accepted a newer epoch; the sender must stop.
	ErrStale = errors.New("runner knows a newer epoch")
	// ErrForeign: the runner serves another session or generation.
	ErrForeign = errors.New("runner serves another sandbox")
	// ErrUnreachable: no runner is connected.
	ErrUnreachable = errors.New("runner is not connected")
	// ErrNeverSeen: the runner never received this op.
	ErrNeverSeen = errors.New("runner never saw this op")
)

// StaleError is ErrStale with the newest fence that the runner knows.
type StaleError struct{ Known Fence }

func (e *StaleError) Error() string { return fmt.Sprintf("%v: %d", ErrStale, e.Known.Epoch) }

// Unwrap makes it ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Fence is what every frame to a runner carries.
type Fence struct {
	Session    dormouse.SessionID `json:"session"`
	Generation uint64             `json:"generation"`
	Epoch      uint64             `json:"epoch"`
}

// Call is an op as it is sent to a runner. Exactly one of the fields after Kind is
// set, and it matches Kind.
type Call struct {
	Op   dormouse.OpID   `json:"op"`
	Kind dormouse.OpKind `json:"kind"`
	// Exec is of an exec or a task.
	Exec *Exec `json:"exec,omitempty"`
	// Write and Edit are of a file write.
	Write *Write `json:"write,omitempty"`
	Edit  *Edit  `json:"edit,omitempty"`
	// Read, Glob and Grep are of a file read.
	Read *Read `json:"read,omitempty"`
	Glob *Glob `json:"glob,omitempty"`
	Grep *Grep `json:"grep,omitempty"`
}

// Exec is a shell command. As a dormouse.OpTask it is left running and its
// result says only that it started.
type Exec struct {
	Command string        `json:"command"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// Shell names the shell that runs the command. A named shell keeps its working
	// directory, variables and jobs from command to command, and runs commands one
	// after the other. A command without a name, or where there is no bash, has a
	// shell of its own. A task always has its own.
	Shell string `json:"shell,omitempty"`
	// Restart ends the shell that Shell names before the command starts. The command
	// may be empty.
	Restart bool `json:"restart,omitempty"`
	// Keep is the length in characters above which the output is also saved to a file
	// in the sandbox, zero for never.
	Keep int `json:"keep,omitempty"`
}

// Write replaces or creates a file, whole or not at all.
type Write struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
}

// Edit replaces a text in an existing file. Unless All is set, the text must occur
// once. Texts with LF match a file with CRLF.
type Edit struct {
	Path string `json:"path"`
	Old  []byte `json:"old"`
	New  []byte `json:"new"`
	All  bool   `json:"all,omitempty"`
}

// Read reads lines of a text file, from From, the first being 1, to To, which is
// -1 for the last there is; zero of either is the same as 1 and -1. An image is
// read whole, and of a directory the names in it.
type Read struct {
	Path string `json:"path"`
	From int64  `json:"from,omitempty"`
	To   int64  `json:"to,omitempty"`
}

// Glob finds files below Path, the workspace if it is empty, by a pattern of their
// names: * and ? stand for what is within one name, ** for directories, [a-z] for
// one character and {a,b} for either.
type Glob struct {
	Path    string `json:"path,omitempty"`
	Pattern string `json:"pattern"`
}

// Grep finds lines of a text file, or of those below a directory, by a regular
// expression of package regexp.
type Grep struct {
	Path    string `json:"path,omitempty"`
	Pattern string `json:"pattern"`
}

// Bounds of what a call returns.
const (
	// MaxText bounds the bytes of text that a read, a glob or a grep returns.
	MaxText = 100_000
	// MaxImage bounds the bytes of an image.
	MaxImage = 3 << 20
	// MaxPattern bounds the bytes of a pattern.
	MaxPattern = 1024
)

// How much a runner keeps of a command's output. Of a longer output, Result.Output is
// exactly the first KeptHead bytes followed by the last KeptTail bytes.
const (
	KeptHead = 1 << 20
	KeptTail = 1 << 20
)

// DefaultEgressAddr is the address of the egress proxy for programs in a sandbox.
const DefaultEgressAddr = "127.0.0.1:3128"

// Result is how a call ended.
type Result struct {
	// Exit is the exit code of an exec, 128+n after signal n.
	Exit int `json:"exit"`
	// Output is what the command printed, or what was read or found. If that is more
	// than the runner keeps, it is the head and the tail.
	Output []byte `json:"output,omitempty"`
	// Omitted counts the bytes between head and tail.
	Omitted int64 `json:"omitted,omitempty"`
	// Error says why a file call failed or a command could not be started.
	Error string `json:"error,omitempty"`
	// TimedOut and Killed say whether the runner ended the command.
	TimedOut bool `json:"timed_out,omitempty"`
	Killed   bool `json:"killed,omitempty"`
	// NewShell reports that the command was the first of a shell that replaced an
	// earlier one of its name: working directory, variables and jobs are lost.
	NewShell bool `json:"new_shell,omitempty"`
	// File is where the output was saved if it is longer than Exec.Keep.
	File string `json:"file,omitempty"`
	// Size is the size of the file that was read or written.
	Size int64 `json:"size,omitempty"`
	// Line is the number of the first line that was read. More reports that Output
	// was truncated.
	Line int64 `json:"line,omitempty"`
	More bool  `json:"more,omitempty"`
	// Media says what was read if that is no text: MediaDirectory, or an image by
	// its media type.
	Media string `json:"media,omitempty"`
	// Count is how many places an edit replaced, or how many files or lines were
	// found.
	Count int `json:"count,omitempty"`
	// Note is a remark for the model: what was left out, or that a shell was restarted.
	Note string `json:"note,omitempty"`
	// PID and Log belong to a task: its process and the file its output goes to.
	PID int    `json:"pid,omitempty"`
	Log string `json:"log,omitempty"`
}

// What a read may return beside text.
const (
	MediaDirectory = "directory"
	MediaPNG       = "image/png"
	MediaJPEG      = "image/jpeg"
	MediaGIF       = "image/gif"
	MediaWebP      = "image/webp"
)

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
