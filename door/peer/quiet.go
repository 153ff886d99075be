package peer

import (
	"sync"
	"time"
)

// quietFor is how long nothing more is said about strangers.
const quietFor = 10 * time.Second

// quiet keeps strangers from filling the log.
type quiet struct {
	mu     sync.Mutex
	spoke  time.Time // guarded by mu
	missed int       // guarded by mu; since then
}

// speak reports whether it is time to say something, and how often it was not
// since the last time.
func (q *quiet) speak() (missed int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.spoke.IsZero() && time.Since(q.spoke) < quietFor {
		q.missed++
		return 0, false
	}
	missed, q.missed, q.spoke = q.missed, 0, time.Now()
	return missed, true
}
