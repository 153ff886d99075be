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

// Bounds limit one frame. A reader checks them against the frame's header before it
// allocates memory.
type Bounds struct {
	Head   int // bytes of JSON
	Values int // values in it
	Body   int // bytes of bulk
}

// FromServer bounds the frames that a runner reads: it trusts its server.
func FromServer() Bounds { return Bounds{Head: MaxFrame, Values: 1 << 20, Body: MaxFrame} }

// FromUnauthenticated bounds the frames that a server reads before a connection is
// authenticated: a hello.
func FromUnauthenticated() Bounds { return Bounds{Head: 4 << 10, Values: 64} }

// FromRunner bounds the frames that a server reads of a runner. Code in the sandbox may
// impersonate the runner, so no length and no count is trusted. The largest head is a
// list of ports, the largest body an image.
func FromRunner() Bounds { return Bounds{Head: 256 << 10, Values: 16 << 10, Body: 4 << 20} }

// maxDepth bounds the nesting of values in a frame.
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

// ReadFrame reads the next frame within bounds. It allocates memory as bytes arrive,
// not by the length in the header.
func ReadFrame(r io.Reader, within Bounds) (Frame, error) {
	return readFrame(r, new(bytes.Buffer), within, nil)
}

// readFrame reads the next frame through a buffer that can be reused. It calls admit
// once the size is known.
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

// countValues refuses JSON with too many values or too much nesting: two bytes of it
// may take a hundred bytes of memory once decoded.
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

// bulkFields returns the fields of a frame that are encoded as bulk, in their order.
func bulkFields(f *Frame) []*[]byte {
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

// split returns a frame without its bulk fields, and their contents.
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
	for _, slot := range bulkFields(&f) {
		bulk = append(bulk, *slot)
		*slot = nil
	}
	return f, bulk
}

// join fills in the bulk fields of a decoded frame, whatever its JSON has there.
func join(f *Frame, bulk []byte) error {
	slots, sizes := bulkFields(f), f.Bulk
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
