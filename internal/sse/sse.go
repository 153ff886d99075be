// Package sse reads server-sent events. It holds one frame at a time, and never more
// than its caller allows.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrTooLong means that a frame is longer than the reader was allowed to hold.
var ErrTooLong = errors.New("an event is too long")

// Frame is what stands between two empty lines. One that holds nothing but comments is
// empty: it is a heartbeat.
type Frame struct {
	ID    string
	Event string
	// Data is the data lines, joined by line ends. It is the caller's to keep.
	Data []byte
}

// Reader reads the frames of a stream. Lines end in \n or \r\n. A byte order mark at the
// start of the stream is skipped.
type Reader struct {
	r       *bufio.Reader
	most    int
	started bool // the first line was read
}

var byteOrderMark = []byte("\ufeff")

// NewReader reads from r frames of at most so many bytes.
func NewReader(r io.Reader, most int) *Reader {
	const buffer = 16 << 10
	return &Reader{r: bufio.NewReaderSize(r, buffer), most: most}
}

// Next returns the next frame. The error is io.EOF if the stream ended between two
// frames, and io.ErrUnexpectedEOF if it ended inside one, of which nothing is returned.
func (r *Reader) Next() (Frame, error) {
	var f Frame
	begun, lines, left := false, 0, r.most
	for {
		line, err := r.line(left)
		if !r.started {
			r.started = true
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if errors.Is(err, io.EOF) && (begun || len(line) > 0) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Frame{}, err
		}
		left -= len(line)
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			if begun {
				return f, nil
			}
			continue
		}
		begun = true
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			f.ID = string(value)
		case "event":
			f.Event = string(value)
		case "data":
			if lines++; lines > 1 {
				f.Data = append(f.Data, '\n')
			}
			f.Data = append(f.Data, value...)
		}
	}
}

// line reads up to and with the next line end. Unless it is longer than the buffer it is
// good until the next call.
func (r *Reader) line(most int) ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
	}
	for errors.Is(err, bufio.ErrBufferFull) && len(line) <= most {
		var part []byte
		part, err = r.r.ReadSlice('\n')
		line = append(line, part...)
	}
	if len(line) > most {
		return nil, ErrTooLong
	}
	return line, err
}
