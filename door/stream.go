package door

import (
	"net/http"
	"time"
)

// Stream writes an answer that goes on. A client that does not read in time ends
// its own stream and nobody else's.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
	// Err is the first failure; nothing is written after it.
	Err error
}

// Pieces is how much is worth gathering before it is written.
const Pieces = 32 << 10

// NewStream is for an answer that its client may wait for as long as it likes. Once
// it comes, each piece must be read within the time.
func NewStream(w http.ResponseWriter, within time.Duration) *Stream {
	s := &Stream{w: w, control: http.NewResponseController(w), within: within}
	_ = s.control.SetReadDeadline(time.Time{})
	_ = s.control.SetWriteDeadline(time.Time{})
	return s
}

// Events begins an answer of server-sent events.
func (s *Stream) Events() {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
}

// Hurry gives the client the time of one piece for whatever is written next.
func (s *Stream) Hurry() { _ = s.control.SetWriteDeadline(time.Now().Add(s.within)) }

// Put writes b. A client has its time for each piece of it, not for the whole:
// one that is slow would never get past a large event.
func (s *Stream) Put(b []byte) {
	for s.Err == nil && len(b) > 0 {
		n := min(len(b), Pieces+Pieces/4)
		s.Hurry()
		_, s.Err = s.w.Write(b[:n])
		b = b[n:]
	}
}

// Flush sends what was put.
func (s *Stream) Flush() {
	if s.Err == nil {
		s.Err = s.control.Flush()
	}
}

// Say puts text and sends it.
func (s *Stream) Say(text string) {
	s.Put([]byte(text))
	s.Flush()
}
