package peer

import (
	"sync"
	"time"
)

// throttlePeriod is how long nothing more is logged.
const throttlePeriod = 10 * time.Second

// throttle limits how often something is logged that strangers can cause.
type throttle struct {
	mu     sync.Mutex
	last   time.Time // guarded by mu; when something was logged
	missed int       // guarded by mu; how often nothing was, since then
}

// allow reports whether to log now, and how many lines were left out since the last
// one.
func (t *throttle) allow() (missed int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.last.IsZero() && time.Since(t.last) < throttlePeriod {
		t.missed++
		return 0, false
	}
	missed, t.missed, t.last = t.missed, 0, time.Now()
	return missed, true
}
