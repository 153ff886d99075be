package runner

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormouse-run/dormouse"
)

// Protocol is the version both ends must speak.
const Protocol = 3

// Kind says what a frame is.
type Kind string

// The kinds of frame.
const (
	// The handshake: the runner authenticates, the server names the sandbox.
	KindHello   Kind = "hello"
	KindBind    Kind = "bind"
	KindBound   Kind = "bound"
	KindRefused Kind = "refused"

	// Requests of the server. Each carries an id and the fence.
	KindStart Kind = "start"
	KindWait  Kind = "wait"
	KindAsk   Kind = "ask"
	KindKill  Kind = "kill"
	// KindForget drops ops that have finished. It has no answer.
	KindForget Kind = "forget"
	// KindDetach cancels a wait.
	KindDetach Kind = "detach"
	// KindOpen asks for a stream; KindStream is how its connection begins.
	KindOpen   Kind = "open"
	KindStream Kind = "stream"

	KindTerminals   Kind = "terminals"
	KindResize      Kind = "resize"
	KindEndTerminal Kind = "end_terminal"
	KindPorts       Kind = "ports"
	KindUsage       Kind = "usage"
	// KindRelieve makes the runner kill the processes that use the most memory.
	KindRelieve Kind = "relieve"
	// KindQuiesce makes the runner close every connection it has.
	KindQuiesce Kind = "quiesce"

	// Answers of the runner. Output frames may be lost; the result is complete.
	KindReply  Kind = "reply"
	KindOutput Kind = "output"

	// KindHeartbeat shows that the sender is alive. Both ends send it.
	KindHeartbeat Kind = "beat"
)

// Frame is one message of either end. AppendFrame describes its encoding.
type Frame struct {
	Kind Kind `json:"kind"`
	// ID pairs a reply with its request.
	ID    uint64        `json:"id,omitempty"`
	Fence *Fence        `json:"fence,omitempty"`
	Hello *Hello        `json:"hello,omitempty"`
	Op    dormouse.OpID `json:"op,omitempty"`
	// Ops are what is to be forgotten.
	Ops    []dormouse.OpID `json:"ops,omitempty"`
	Call   *Call           `json:"call,omitempty"`
	Report *Report         `json:"report,omitempty"`
	Output []byte          `json:"output,omitempty"`
	// Bulk are the lengths of what follows the JSON: file contents and output.
	Bulk []int `json:"bulk,omitempty"`
	// StreamID pairs a stream's connection with the request for it.
	StreamID  string           `json:"stream_id,omitempty"`
	Stream    *Stream          `json:"stream,omitempty"`
	Terminal  *Terminal        `json:"terminal,omitempty"`
	Terminals []TerminalReport `json:"terminals,omitempty"`
	Ports     []Port           `json:"ports,omitempty"`
	Usage     *Usage           `json:"usage,omitempty"`
	Bytes     int64            `json:"bytes,omitempty"` // to be freed
	Victims   []Victim         `json:"victims,omitempty"`
	// Refusal and Detail say why a frame was refused.
	Refusal Refusal `json:"refusal,omitempty"`
	Detail  string  `json:"detail,omitempty"`
}

// Hello is how a runner opens a connection.
type Hello struct {
	Protocol int    `json:"protocol"`
	Secret   string `json:"secret"`
	// Fence is the newest fence that the runner has accepted.
	Fence Fence `json:"fence"`
}

// Refusal is an error of the protocol as it is encoded in a frame.
type Refusal string

// The refusals.
const (
	RefusedStale    Refusal = "stale"
	RefusedForeign  Refusal = "foreign"
	RefusedNever    Refusal = "never_seen"
	RefusedInvalid  Refusal = "invalid"
	RefusedNotFound Refusal = "not_found"
	RefusedConflict Refusal = "conflict"
)

// RefusalOf encodes err for the wire.
func RefusalOf(err error) (Refusal, string) {
	switch {
	case errors.Is(err, ErrStale):
		return RefusedStale, ""
	case errors.Is(err, ErrForeign):
		return RefusedForeign, ""
	case errors.Is(err, ErrNeverSeen):
		return RefusedNever, ""
	case errors.Is(err, dormouse.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return RefusedNotFound, err.Error()
	case errors.Is(err, dormouse.ErrConflict):
		return RefusedConflict, err.Error()
	}
	return RefusedInvalid, err.Error()
}

// err decodes the refusal of a frame.
func (f Frame) err() error {
	meaning := dormouse.ErrInvalid
	switch f.Refusal {
	case "":
		return nil
	case RefusedStale:
		return ErrStale
	case RefusedForeign:
		return ErrForeign
	case RefusedNever:
		return ErrNeverSeen
	case RefusedNotFound:
		meaning = dormouse.ErrNotFound
	case RefusedConflict:
		meaning = dormouse.ErrConflict
	case RefusedInvalid:
	}
	return fmt.Errorf("runner refused: %.200q: %w", f.Detail, meaning)
}
