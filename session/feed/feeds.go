package feed

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/dormouse-run/dormouse"
)

// Log is where followers read what was committed before they came.
type Log interface {
	// ReadPage returns events after a seq with their payloads: at most limit, fewer if
	// they are large, none only at the end.
	ReadPage(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error)
	// Exists returns nil if there is such a session.
	Exists(ctx context.Context, id dormouse.SessionID) error
}

// Feeds are the feeds of all sessions that are followed on this server.
type Feeds struct {
	log Log

	mu   sync.Mutex
	live map[dormouse.SessionID]*ring // guarded by mu; only sessions that are followed
}

// New returns feeds whose followers read history from a log.
func New(log Log) *Feeds { return &Feeds{log: log, live: make(map[dormouse.SessionID]*ring)} }

// Follow reads a session from a cursor on. It joins the feed before anything is read, so
// that nothing is missed between reading and listening.
func (f *Feeds) Follow(id dormouse.SessionID, after uint64) *Follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.live[id]
	if r == nil {
		r = &ring{changed: make(chan struct{})}
		f.live[id] = r
	}
	r.followers++
	return &Follower{feeds: f, ring: r, id: id, cursor: after}
}

// FollowUntil is Follow for a feed that ends with an error when gone is closed, after the
// items it still has.
func (f *Feeds) FollowUntil(id dormouse.SessionID, after uint64, gone <-chan struct{}, why error) *Follower {
	follower := f.Follow(id, after)
	follower.gone, follower.why = gone, why
	return follower
}

// Publish hands events that were just committed to the followers of their session.
func (f *Feeds) Publish(id dormouse.SessionID, events []dormouse.Event) {
	if r := f.of(id); r != nil {
		r.add(asItems(events)...)
	}
}

// Show hands a delta to the followers of a session.
func (f *Feeds) Show(id dormouse.SessionID, d dormouse.Delta) {
	if r := f.of(id); r != nil {
		r.add(&Item{Delta: &d})
	}
}

// Progress returns a function that tells the followers of a session how much of its layers
// has been fetched, at most a hundred times.
func (f *Feeds) Progress(id dormouse.SessionID) func(done, total int64) {
	const steps = 100
	var shown int64
	return func(done, total int64) {
		if done-shown >= max(total/steps, 1) || done == total {
			shown = done
			f.Show(id, dormouse.Delta{Fetched: &dormouse.Fetched{Bytes: done, Of: total}})
		}
	}
}

// Advance tells the followers of a session how far its log goes, also if another server
// wrote it.
func (f *Feeds) Advance(id dormouse.SessionID, upto uint64) {
	if r := f.of(id); r != nil {
		r.advance(upto)
	}
}

// Relay adds what another server sent.
func (f *Feeds) Relay(id dormouse.SessionID, from Relayed) {
	switch {
	case from.Event != nil:
		f.Publish(id, []dormouse.Event{*from.Event})
	case from.Delta != nil:
		f.Show(id, *from.Delta)
	default:
		f.Advance(id, from.Upto)
	}
}

// Newest is the seq of the newest event that the followers of a session were
// given.
func (f *Feeds) Newest(id dormouse.SessionID) uint64 {
	r := f.of(id)
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// Followed returns the sessions that are followed.
func (f *Feeds) Followed() []dormouse.SessionID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.live))
}

// Among returns those of the sessions that are followed.
func (f *Feeds) Among(ids []dormouse.SessionID) []dormouse.SessionID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id dormouse.SessionID) bool { return f.live[id] == nil })
}

// End tells every follower that no more will come.
func (f *Feeds) End(cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.live {
		r.end(cause)
	}
}

func (f *Feeds) of(id dormouse.SessionID) *ring {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[id]
}
