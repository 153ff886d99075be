package feed

import "sync"

// The size of a ring buffer. It is shared: a follower costs its cursor.
const (
	ringItems = 8192
	ringBytes = 1 << 20
)

// ring is a ring buffer of the newest items of a session, for its live followers.
type ring struct {
	followers int // guarded by Feeds.mu

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed and replaced when something is added
	items   []*Item       // guarded by mu
	first   uint64        // guarded by mu; the position of items[0]
	size    int           // guarded by mu
	newest  uint64        // guarded by mu; the seq of the newest event that was added
	upto    uint64        // guarded by mu; how far the log is known to go
	ended   error         // guarded by mu
}

func (r *ring) add(items ...*Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, items...)
	for _, i := range items {
		r.size += i.size()
		r.newest = max(r.newest, i.Event.Seq)
	}
	if len(r.items) > 2*ringItems || r.size > 2*ringBytes { // cut rarely, and then by half
		drop := 0
		for len(r.items)-drop > ringItems || r.size > ringBytes && len(r.items)-drop > 1 {
			r.size -= r.items[drop].size()
			drop++
		}
		r.items, r.first = append([]*Item(nil), r.items[drop:]...), r.first+uint64(drop)
	}
	r.notify()
}

func (r *ring) advance(upto uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if upto <= max(r.newest, r.upto) {
		return
	}
	r.upto = upto
	r.notify()
}

func (r *ring) end(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = cause
	r.notify()
}

// notify wakes all waiting followers. The caller holds mu.
func (r *ring) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}
