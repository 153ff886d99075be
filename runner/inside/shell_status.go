package inside

import (
	"bytes"
	"io"
	"strconv"
	"sync"
)

// maxStatus bounds what follows the mark in what a shell says at the end of a command.
const maxStatus = 32

// shellOutput is what a shell and its commands print, in order, and among it what the
// shell says at the end of each command: a NUL byte, a mark that nobody else knows,
// the command's number, a space, its exit code, a newline. A command can learn the
// mark; then it can end itself, and no other.
type shellOutput struct {
	mark   []byte                          // with the NUL byte
	report func(seq uint64, code int) bool // whether that was the command's end

	mu   sync.Mutex
	to   io.Writer // guarded by mu; nil while nobody wants it
	held []byte    // guarded by mu; the beginning of what may become a status
	said bool      // guarded by mu; how the command ended
	late []byte    // guarded by mu; what was printed after that
}

// maxLate bounds what is kept of what is printed late.
const maxLate = 64 << 10

// Write never fails.
func (s *shellOutput) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(b)
	if len(s.held) > 0 {
		b = append(s.held, b...)
		s.held = nil
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
			s.said = s.report(seq, code) || s.said
			b = b[size:]
		case statusNone:
			s.pass(b[:1])
			b = b[1:]
		case statusPart:
			s.held = bytes.Clone(b)
			return n, nil
		}
	}
	return n, nil
}

func (s *shellOutput) pass(b []byte) {
	switch {
	case s.to == nil || len(b) == 0:
	case s.said:
		s.late = append(s.late, b[:min(len(b), maxLate-len(s.late))]...)
	default:
		_, _ = s.to.Write(b)
	}
}

// lend has what is printed from now on go to w. What was printed for nobody is gone.
func (s *shellOutput) lend(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to, s.held, s.said, s.late = w, nil, false, nil
}

// reclaim ends that. What looked like a status and is none was printed. What came
// late is the command's if somebody it left behind printed it, and not the shell.
func (s *shellOutput) reclaim(late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(s.held)
	if late && len(s.late) > 0 {
		_, _ = s.to.Write(s.late)
	}
	s.to, s.held, s.late = nil, nil, nil
}

type statusState int

const (
	statusNone statusState = iota
	statusPart
	statusWhole
)

// status reads what a shell says from the beginning of b.
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
