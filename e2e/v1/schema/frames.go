package schema

import (
	"bytes"
	"errors"
	"fmt"
)

// Frame is one event of a stream as it was on the wire.
type Frame struct {
	Event string
	Named bool // it had an event line
	Data  []byte
	// Lines counts the data lines.
	Lines int
}

// maxLine is what clients read of one line.
const maxLine = 32 << 20

// errLong means that no client would read a line.
var errLong = errors.New("a line of the stream is longer than 32 MiB")

// Frames splits what is written to it into frames. It is not internal/sse, which is lenient
// as clients are: it counts the lines of a frame, and knows every way to end one.
type Frames struct {
	// See is called with each frame.
	See func(Frame)

	line []byte
	cr   bool // the last byte was a carriage return
	now  Frame
	some bool
}

// Write takes the next bytes of a stream, however they were cut.
func (f *Frames) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if f.cr && p[0] == '\n' { // the second half of a line's end
			f.cr, p = false, p[1:]
			continue
		}
		f.cr = false
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			f.line = append(f.line, p...)
			if len(f.line) > maxLine {
				return 0, errLong
			}
			return n, nil
		}
		f.line = append(f.line, p[:end]...)
		f.cr = p[end] == '\r'
		p = p[end+1:]
		f.end()
	}
	return n, nil
}

// Rest is what came after the last whole frame.
func (f *Frames) Rest() error {
	if len(f.line) > 0 || f.some {
		return fmt.Errorf("the stream ended inside a frame: %q", append(f.now.Data, f.line...))
	}
	return nil
}

// end takes a line that is whole.
func (f *Frames) end() {
	line := f.line
	f.line = f.line[:0]
	if len(line) == 0 {
		if f.some {
			f.See(f.now)
		}
		f.now, f.some = Frame{}, false
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		f.now.Event, f.now.Named, f.some = string(value), true, true
	case "data":
		if f.now.Lines > 0 {
			f.now.Data = append(f.now.Data, '\n')
		}
		f.now.Data, f.some = append(f.now.Data, value...), true
		f.now.Lines++
	}
}
