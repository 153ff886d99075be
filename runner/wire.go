package runner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dormouse-run/dormouse"
)

// Limits of the wire.
const (
	// MaxFrame bounds one frame; a longer one ends the connection.
	MaxFrame = 16 << 20

	maxOutput = 64 << 10 // the bytes of one output frame
)

// Bounds are what a reader takes of one frame. They are held against what the
// frame says of itself before any memory is taken for it.
type Bounds struct {
	Head   int // bytes of JSON
	Values int // values in it
	Body   int // bytes of bulk
}

// FromServer is what a runner reads: its server is no stranger.
func FromServer() Bounds { return Bounds{Head: MaxFrame, Values: 1 << 20, Body: MaxFrame} }

// FromStranger is what a server reads of whoever has yet to prove who it is: a
// hello.
func FromStranger() Bounds { return Bounds{Head: 4 << 10, Values: 64} }

// FromRunner is what a server reads of a runner. Whoever is inside a sandbox may
// play the runner, so no length and no count is believed that was merely told. The
// largest head is a list of ports, the largest body an image that was read.
func FromRunner() Bounds { return Bounds{Head: 256 << 10, Values: 16 << 10, Body: 4 << 20} }

// maxDepth is how deep the values of a frame may lie in each other.
const maxDepth = 16

// frameHead is what a frame begins with: the lengths of its JSON and of its bulk.
const frameHead = 8

// AppendFrame adds f to b as it goes over the wire: the lengths of head and body in
// four bytes each, the head, which is JSON, and the body, which is file contents and
// output as they are.
func AppendFrame(b []byte, f Frame) ([]byte, error) {
	start := len(b)
	f, bulk := f.split()
	size := 0
	for _, part := range bulk {
		f.Bulk = append(f.Bulk, len(part))
		size += len(part)
	}
	buf := bytes.NewBuffer(append(b, make([]byte, frameHead)...))
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f); err != nil {
		return b, fmt.Errorf("encode %s frame: %w", f.Kind, err)
	}
	head := buf.Len() - start - frameHead
	if head+size > MaxFrame {
		return b, fmt.Errorf("%s frame of %d bytes, at most %d are sent: %w", f.Kind, head+size, MaxFrame, dormouse.ErrTooLarge)
	}
	for _, part := range bulk {
		buf.Write(part)
	}
	b = buf.Bytes()
	binary.BigEndian.PutUint32(b[start:], uint32(head)) //nolint:gosec // at most MaxFrame
	binary.BigEndian.PutUint32(b[start+4:], uint32(size))
	return b, nil
}

// ReadFrame reads the next frame within bounds. Memory is taken as bytes arrive, not
// as a length promises them.
func ReadFrame(r io.Reader, within Bounds) (Frame, error) {
	return readFrame(r, new(bytes.Buffer), within, nil)
}

// readFrame reads the next frame by way of a buffer that may be used again. Once its
// size is known, admit is asked for leave.
func readFrame(r io.Reader, buf *bytes.Buffer, within Bounds, admit func(size int) error) (Frame, error) {
	var lengths [frameHead]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return Frame{}, err
	}
	head, body := binary.BigEndian.Uint32(lengths[:]), binary.BigEndian.Uint32(lengths[4:])
	if int64(head) > int64(within.Head) || int64(body) > int64(within.Body) {
		return Frame{}, fmt.Errorf("frame of %d and %d bytes, at most %d and %d are read: %w", head, body, within.Head, within.Body, dormouse.ErrTooLarge)
	}
	if admit != nil {
		if err := admit(int(head + body)); err != nil {
			return Frame{}, err
		}
	}
	buf.Reset()
	if err := readInto(buf, r, int(head)); err != nil {
		return Frame{}, err
	}
	if err := countValues(buf.Bytes(), within.Values); err != nil {
		return Frame{}, err
	}
	var f Frame
	if err := json.Unmarshal(buf.Bytes(), &f); err != nil {
		return Frame{}, fmt.Errorf("decode frame: %w: %w", dormouse.ErrInvalid, err)
	}
	bulk := new(bytes.Buffer)
	if err := readInto(bulk, r, int(body)); err != nil {
		return Frame{}, err
	}
	return f, join(&f, bulk.Bytes())
}

// readInto reads n bytes to a buffer.
func readInto(buf *bytes.Buffer, r io.Reader, n int) error {
	if n == 0 {
		return nil
	}
	buf.Grow(min(n, maxOutput) + bytes.MinRead) // most are of that size, and it is little
	_, err := io.CopyN(buf, r, int64(n))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// countValues refuses JSON that would become more values than are wanted, or lie
// deeper in each other: two bytes of it may become a hundred of memory.
func countValues(b []byte, most int) error {
	values, depth, quoted := 1, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ',', c == ':':
			values++
		case c == '[', c == '{':
			values++
			depth++
		case c == ']', c == '}':
			depth--
		}
		if values > most || depth > maxDepth {
			return fmt.Errorf("frame of more than %d values, or deeper than %d: %w", most, maxDepth, dormouse.ErrTooLarge)
		}
	}
	return nil
}

// slots are the fields of a frame that travel as bulk, in their order.
func slotsOf(f *Frame) []*[]byte {
	switch {
	case f.Kind == KindOutput:
		return []*[]byte{&f.Output}
	case f.Report != nil && f.Report.Result != nil:
		return []*[]byte{&f.Report.Result.Output}
	case f.Call != nil && f.Call.Write != nil:
		return []*[]byte{&f.Call.Write.Content}
	case f.Call != nil && f.Call.Edit != nil:
		return []*[]byte{&f.Call.Edit.Old, &f.Call.Edit.New}
	}
	return nil
}

// split returns a frame without its bulk, and that.
func (f Frame) split() (Frame, [][]byte) {
	switch {
	case f.Report != nil && f.Report.Result != nil:
		report, result := *f.Report, *f.Report.Result
		report.Result, f.Report = &result, &report
	case f.Call != nil && f.Call.Write != nil:
		call, write := *f.Call, *f.Call.Write
		call.Write, f.Call = &write, &call
	case f.Call != nil && f.Call.Edit != nil:
		call, edit := *f.Call, *f.Call.Edit
		call.Edit, f.Call = &edit, &call
	}
	f.Bulk = nil
	var bulk [][]byte
	for _, slot := range slotsOf(&f) {
		bulk = append(bulk, *slot)
		*slot = nil
	}
	return f, bulk
}

// join gives a frame its bulk back. Nothing else may stand where that belongs.
func join(f *Frame, bulk []byte) error {
	slots, sizes := slotsOf(f), f.Bulk
	f.Bulk = nil
	if len(sizes) != len(slots) {
		return fmt.Errorf("frame with %d pieces of bulk, where %d belong: %w", len(sizes), len(slots), dormouse.ErrInvalid)
	}
	for i, n := range sizes {
		if n < 0 || n > len(bulk) {
			return fmt.Errorf("frame with bulk of another size than it says: %w", dormouse.ErrInvalid)
		}
		*slots[i] = nil
		if n > 0 {
			*slots[i] = bulk[:n:n]
		}
		bulk = bulk[n:]
	}
	if len(bulk) > 0 {
		return fmt.Errorf("frame with bulk of another size than it says: %w", dormouse.ErrInvalid)
	}
	return nil
}
