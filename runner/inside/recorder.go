package inside

import (
	"sync"

	"github.com/dormouse-run/dormouse/runner"
)

// recorder keeps the head and the tail of what is written to it, in bounded memory, and
// passes all of it on to followers.
type recorder struct {
	mu        sync.Mutex
	head      []byte                  // guarded by mu
	tail      []byte                  // guarded by mu; a ring buffer once it is full
	next      int                     // guarded by mu; where the ring buffer is written next
	omitted   int64                   // guarded by mu
	followers map[uint64]func([]byte) // guarded by mu
	last      uint64                  // guarded by mu
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.followers {
		f(b)
	}
	n := len(b)
	if room := runner.KeptHead - len(r.head); room > 0 {
		k := min(room, len(b))
		r.head = append(r.head, b[:k]...)
		b = b[k:]
	}
	if over := len(b) - runner.KeptTail; over > 0 {
		r.omitted += int64(over)
		b = b[over:]
	}
	if room := runner.KeptTail - len(r.tail); room > 0 {
		k := min(room, len(b))
		r.tail = append(r.tail, b[:k]...)
		b = b[k:]
	}
	r.omitted += int64(len(b))
	for len(b) > 0 {
		k := copy(r.tail[r.next:], b)
		r.next = (r.next + k) % runner.KeptTail
		b = b[k:]
	}
	return n, nil
}

// take returns head and tail, and how many bytes between them were dropped. It empties
// the recorder.
func (r *recorder) take() ([]byte, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := append(r.head, r.tail[r.next:]...)
	out = append(out, r.tail[:r.next]...)
	r.head, r.tail, r.next = nil, nil, 0
	return out, r.omitted
}

// follow passes on what is written from now on, until stop is called. f must
// not block.
func (r *recorder) follow(f func([]byte)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.followers == nil {
		r.followers = make(map[uint64]func([]byte))
	}
	r.last++
	id := r.last
	r.followers[id] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.followers, id)
	}
}
