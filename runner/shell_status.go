package runner

import (
	"bytes"
	"strconv"
)

// maxStatus bounds what a shell may write to say how one command ended.
const maxStatus = 32

// statusReader takes in what a shell writes at the end of each command: its
// number, a space, its exit code, a newline. Any process inside can write there
// too, so whatever else comes is passed over.
type statusReader struct {
	report  func(seq uint64, code int)
	line    []byte // what is here of a line that is not
	tooLong bool   // the line is no status, however it goes on
}

// Write never fails.
func (s *statusReader) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		if s.tooLong = s.tooLong || len(s.line)+len(line) > maxStatus; !s.tooLong {
			s.line = append(s.line, line...)
		}
		if !whole {
			return n, nil
		}
		if seq, code, ok := parseStatus(s.line); ok && !s.tooLong {
			s.report(seq, code)
		}
		s.line, s.tooLong, b = s.line[:0], false, rest
	}
}

func parseStatus(line []byte) (seq uint64, code int, ok bool) {
	a, b, _ := bytes.Cut(line, []byte{' '})
	seq, err := strconv.ParseUint(string(a), 10, 64)
	if err != nil {
		return 0, 0, false
	}
	c, err := strconv.ParseUint(string(b), 10, 8)
	return seq, int(c), err == nil
}
