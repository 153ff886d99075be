package peer

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// window is how far a request's time may be off ours. Servers learn the
	// database's time to within half a round trip, a slow one at worst a few
	// seconds; a request may wait a few more for a connection. A wider window would
	// only cost memory: what comes twice within it is refused in any case.
	window = 30 * time.Second
	// maxNonces bounds the requests remembered, which are those of two windows at
	// most: thousands of requests in every second, in some tens of megabytes.
	maxNonces = 1 << 19
)

// Why a request that was well signed is refused all the same. It may be one that
// was carried out before, so that none of these says that it was not.
var (
	errStale         = errors.New("the request is too old, or of a time to come")
	errReplayed      = errors.New("the request came before")
	errTooManyNonces = errors.New("too many requests to tell a new one from a repeated one")
)

// nonces remembers requests for as long as their time is accepted. They are grouped by
// the window of their time, and forgotten with it.
type nonces struct {
	mu    sync.Mutex
	seen  map[int64]map[nonce]struct{} // guarded by mu; by window
	count int                          // guarded by mu
	now   int64                        // guarded by mu; the latest time that it was
}

// take remembers a request of time at, which comes now. Both are microseconds by
// the database's clock.
func (n *nonces) take(id nonce, at, now int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = max(n.now, now) // what was forgotten stays too old, whatever a clock does
	const width = int64(window / time.Microsecond)
	if at < n.now-width || at > n.now+width {
		off := time.UnixMicro(at).Sub(time.UnixMicro(n.now))
		return fmt.Errorf("%w: by the database's clock its time is off by %v, and may be by %v", errStale, off, window)
	}
	for slot, seen := range n.seen {
		if (slot+1)*width <= n.now-width {
			n.count -= len(seen)
			delete(n.seen, slot)
		}
	}
	slot := at / width
	if _, again := n.seen[slot][id]; again {
		return errReplayed
	}
	if n.count >= maxNonces {
		return fmt.Errorf("%w: %d in %v", errTooManyNonces, n.count, 2*window)
	}
	if n.seen == nil {
		n.seen = make(map[int64]map[nonce]struct{})
	}
	if n.seen[slot] == nil {
		n.seen[slot] = make(map[nonce]struct{})
	}
	n.seen[slot][id] = struct{}{}
	n.count++
	return nil
}
