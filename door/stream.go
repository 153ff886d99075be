package door

import (
	"net/http"
	"time"
)

// Stream writes a response that has no known end. A client that does not read in
// time ends its own stream and no other.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
	// Err is the first failure; nothing is written after it.
	Err error
}

// BufferSize is how many bytes are worth gathering before they are written.
const BufferSize = 32 << 10

// NewStream returns the stream of a response that the client may wait for without
// limit. Each buffer of it must then be read within the time.
func NewStream(w http.ResponseWriter, within time.Duration) *Stream {
	s := &Stream{w: w, control: http.NewResponseController(w), within: within}
	_ = s.control.SetReadDeadline(time.Time{})
	_ = s.control.SetWriteDeadline(time.Time{})
	return s
}

// BeginEvents sends the headers of a response of server-sent events.
func (s *Stream) BeginEvents() {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
}

// ArmDeadline starts the deadline for what is written next.
func (s *Stream) ArmDeadline() { _ = s.control.SetWriteDeadline(time.Now().Add(s.within)) }

// Put writes b. The deadline is for each buffer of it and not for all of it: a slow
// client would never get past a large event.
func (s *Stream) Put(b []byte) {
	for s.Err == nil && len(b) > 0 {
		n := min(len(b), BufferSize+BufferSize/4)
		s.ArmDeadline()
		_, s.Err = s.w.Write(b[:n])
		b = b[n:]
	}
}

// Flush sends what was written.
func (s *Stream) Flush() {
	if s.Err == nil {
		s.Err = s.control.Flush()
	}
}

// Send writes text and flushes it.
func (s *Stream) Send(text string) {
	s.Put([]byte(text))
	s.Flush()
}
