package inside

import (
	"bytes"
	"io"
	"strconv"
	"sync"
)

// maxStatus bounds a status after its mark.
const maxStatus = 32

// shellOutput separates the output of commands from the status that the shell writes at
// the end of each: a NUL byte, a random mark, the command's number, a space, its exit
// code, a newline. A command can find out the mark; then it can end itself, and no other.
type shellOutput struct {
	mark   []byte                          // including the NUL byte
	report func(seq uint64, code int) bool // returns whether it was the current command's

	mu       sync.Mutex
	to       io.Writer // guarded by mu; nil while no command is attached
	partial  []byte    // guarded by mu; a possible prefix of a status
	reported bool      // guarded by mu; the status was read
	late     []byte    // guarded by mu; output after the status
}

// maxLate bounds the output after the status that is kept.
const maxLate = 64 << 10

// Write never fails.
func (s *shellOutput) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(b)
	if len(s.partial) > 0 {
		b = append(s.partial, b...)
		s.partial = nil
	}
	for len(b) > 0 {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			s.pass(b)
			break
		}
		s.pass(b[:i])
		b = b[i:]
		size, seq, code, state := s.status(b)
		switch state {
		case statusWhole:
			s.reported = s.report(seq, code) || s.reported
			b = b[size:]
		case statusNone:
			s.pass(b[:1])
			b = b[1:]
		case statusPart:
			s.partial = bytes.Clone(b)
			return n, nil
		}
	}
	return n, nil
}

func (s *shellOutput) pass(b []byte) {
	switch {
	case s.to == nil || len(b) == 0:
	case s.reported:
		s.late = append(s.late, b[:min(len(b), maxLate-len(s.late))]...)
	default:
		_, _ = s.to.Write(b)
	}
}

// attach sends output to w from now on. Output before that is discarded.
func (s *shellOutput) attach(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to, s.partial, s.reported, s.late = w, nil, false, nil
}

// detach undoes attach. An incomplete status was output. Output after the status belongs
// to the command if late is set: then a process that it left behind printed it.
func (s *shellOutput) detach(late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(s.partial)
	if late && len(s.late) > 0 {
		_, _ = s.to.Write(s.late)
	}
	s.to, s.partial, s.late = nil, nil, nil
}

type statusState int

const (
	statusNone statusState = iota
	statusPart
	statusWhole
)

// status parses a status at the beginning of b.
func (s *shellOutput) status(b []byte) (size int, seq uint64, code int, state statusState) {
	if len(b) < len(s.mark) {
		if bytes.HasPrefix(s.mark, b) {
			return 0, 0, 0, statusPart
		}
		return 0, 0, 0, statusNone
	}
	rest, ok := bytes.CutPrefix(b, s.mark)
	if !ok {
		return 0, 0, 0, statusNone
	}
	line, _, whole := bytes.Cut(rest[:min(len(rest), maxStatus)], []byte{'\n'})
	if !whole {
		if len(rest) < maxStatus {
			return 0, 0, 0, statusPart
		}
		return 0, 0, 0, statusNone
	}
	if seq, code, ok = parseStatus(line); !ok {
		return 0, 0, 0, statusNone
	}
	return len(s.mark) + len(line) + 1, seq, code, statusWhole
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
