package runner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/dormouse-run/dormouse"
)

// Protocol is the version both ends must speak.
const Protocol = 2

// Limits of the wire. Whoever is inside a sandbox may play the runner, so the
// server believes no length and no count that it was merely told.
const (
	// MaxFrame bounds one frame; a longer one ends the connection.
	MaxFrame = 16 << 20
	// MaxReported bounds the ops named in a hello.
	MaxReported = 1000

	MaxHello  = 256 << 10 // a hello comes before any trust
	maxOutput = 64 << 10  // the bytes of one output frame
)

// Kind says what a frame is.
type Kind string

// The kinds of frame.
const (
	// The handshake: the runner says who it is, the server whom it serves.
	KindHello   Kind = "hello"
	KindBind    Kind = "bind"
	KindBound   Kind = "bound"
	KindRefused Kind = "refused"

	// Requests of the server. Each carries an id and the fence.
	KindStart Kind = "start"
	KindWait  Kind = "wait"
	KindAsk   Kind = "ask"
	KindKill  Kind = "kill"
	// KindForget drops ops that are over. Nobody waits for an answer.
	KindForget Kind = "forget"
	// KindDetach ends a wait that nobody waits for any more.
	KindDetach Kind = "detach"
	// KindOpen asks for a stream; KindStream is how its connection begins.
	KindOpen   Kind = "open"
	KindStream Kind = "stream"

	KindTerminals   Kind = "terminals"
	KindResize      Kind = "resize"
	KindEndTerminal Kind = "end_terminal"
	KindPorts       Kind = "ports"
	KindUsage       Kind = "usage"
	// KindRelieve makes the runner kill the processes that hold the most memory.
	KindRelieve Kind = "relieve"
	// KindQuiesce makes the runner close every connection it has.
	KindQuiesce Kind = "quiesce"

	// Answers of the runner. Output may be lost; the result is the truth.
	KindReply  Kind = "reply"
	KindOutput Kind = "output"

	// KindBeat says only that the sender lives. Both ends send it.
	KindBeat Kind = "beat"
)

// Frame is one message of either end: four bytes of length, then its JSON.
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
	// Fence is the newest the runner has met.
	Fence Fence `json:"fence"`
	// Ops names what runs and what finished, running first, at most MaxReported.
	Ops []Report `json:"ops,omitempty"`
}

// Refusal is an error of the protocol as it travels.
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

// Refuse spells err for the wire.
func Refuse(err error) (Refusal, string) {
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

// err is what a refusal means to the one refused.
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

// AppendFrame adds f to b as it goes over the wire.
func AppendFrame(b []byte, f Frame) ([]byte, error) {
	start := len(b)
	buf := bytes.NewBuffer(append(b, 0, 0, 0, 0))
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f); err != nil {
		return b, fmt.Errorf("encode %s frame: %w", f.Kind, err)
	}
	b = buf.Bytes()
	size := len(b) - start - 4
	if size > MaxFrame {
		return b[:start], fmt.Errorf("%s frame of %d bytes, at most %d are sent: %w", f.Kind, size, MaxFrame, dormouse.ErrTooLarge)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(size)) //nolint:gosec // at most MaxFrame
	return b, nil
}

// ReadFrame reads the next frame of at most limit bytes. Memory is taken as
// bytes arrive, not as a length promises them.
func ReadFrame(r io.Reader, limit int) (Frame, error) {
	return readFrame(r, new(bytes.Buffer), limit)
}

// readFrame reads the next frame by way of a buffer that may be used again.
func readFrame(r io.Reader, buf *bytes.Buffer, limit int) (Frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if int64(size) > int64(limit) {
		return Frame{}, fmt.Errorf("frame of %d bytes, at most %d are read: %w", size, limit, dormouse.ErrTooLarge)
	}
	buf.Reset()
	buf.Grow(min(int(size), maxOutput) + bytes.MinRead) // most frames are of that size, and it is little
	if _, err := io.CopyN(buf, r, int64(size)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	var f Frame
	if err := json.Unmarshal(buf.Bytes(), &f); err != nil {
		return Frame{}, fmt.Errorf("decode frame: %w", err)
	}
	return f, nil
}
