package session

import (
	"maps"
	"slices"
	"sync"

	"github.com/dormouse-run/dormouse"
)

// Item is what a follower receives: an event of the log, or a delta on the way
// to one. It is shared by all followers; its JSON is made once.
type Item struct {
	Event dormouse.Event
	// Delta is set on fragments, which have no seq and may be lost.
	Delta *Delta

	once sync.Once
	raw  []byte
}

type (
	// Delta is a fragment of a reply or of a tool's output.
	Delta = dormouse.Delta
	// Fetched is how many bytes of how many have come.
	Fetched = dormouse.Fetched
)

// fetching tells the followers of a session how far it is with fetching layers, now
// and then.
func (f *feeds) fetching(id dormouse.SessionID) func(done, total int64) {
	const steps = 100
	var told int64
	return func(done, total int64) {
		if done-told >= max(total/steps, 1) || done == total {
			told = done
			f.show(id, Delta{Fetched: &Fetched{Bytes: done, Of: total}})
		}
	}
}

// JSON returns the item as every door sends it.
func (i *Item) JSON() []byte {
	i.once.Do(func() {
		if i.Delta != nil {
			i.raw = dormouse.Encode(i.Delta)
			return
		}
		i.raw = dormouse.Encode(i.Event)
	})
	return i.raw
}

// What a feed keeps for the followers that are live. It is shared: a follower
// costs its cursor.
const (
	ringItems = 8192
	ringBytes = 1 << 20
)

// feeds hands what actors commit to whoever follows. It exists apart from the
// actors, which come and go.
type feeds struct {
	mu   sync.Mutex
	live map[dormouse.SessionID]*feed // guarded by mu; only sessions that are followed
}

type feed struct {
	followers int // guarded by feeds.mu

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed and replaced when something is added
	items   []*Item       // guarded by mu
	first   uint64        // guarded by mu; the position of items[0]
	size    int           // guarded by mu
	newest  uint64        // guarded by mu; the seq of the newest event that was added
	upto    uint64        // guarded by mu; how far the log is known to go
	ended   error         // guarded by mu
}

func newFeeds() *feeds { return &feeds{live: make(map[dormouse.SessionID]*feed)} }

func (f *feeds) of(id dormouse.SessionID) *feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[id]
}

func (f *feeds) publish(id dormouse.SessionID, events []dormouse.Event) {
	if feed := f.of(id); feed != nil {
		items := make([]*Item, len(events))
		for i, e := range events {
			items[i] = &Item{Event: e}
		}
		feed.add(items...)
	}
}

func (f *feeds) show(id dormouse.SessionID, d Delta) {
	if feed := f.of(id); feed != nil {
		feed.add(&Item{Delta: &d})
	}
}

// stir tells the followers of a session how far its log goes, whoever wrote it.
func (f *feeds) stir(id dormouse.SessionID, upto uint64) {
	if feed := f.of(id); feed != nil {
		feed.stir(upto)
	}
}

// relay adds what another server told.
func (f *feeds) relay(id dormouse.SessionID, told Relayed) {
	switch {
	case told.Event != nil:
		f.publish(id, []dormouse.Event{*told.Event})
	case told.Delta != nil:
		f.show(id, *told.Delta)
	default:
		f.stir(id, told.Upto)
	}
}

// newest is the seq of the newest event that the followers of a session were
// given.
func (f *feeds) newest(id dormouse.SessionID) uint64 {
	feed := f.of(id)
	if feed == nil {
		return 0
	}
	feed.mu.Lock()
	defer feed.mu.Unlock()
	return feed.newest
}

// followed returns the sessions that are followed.
func (f *feeds) followed() []dormouse.SessionID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.live))
}

// among returns those of the sessions that are followed.
func (f *feeds) among(ids []dormouse.SessionID) []dormouse.SessionID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id dormouse.SessionID) bool { return f.live[id] == nil })
}

// end tells every follower that no more will come.
func (f *feeds) end(cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, feed := range f.live {
		feed.mu.Lock()
		feed.ended = cause
		close(feed.changed)
		feed.changed = make(chan struct{})
		feed.mu.Unlock()
	}
}

func (f *feed) add(items ...*Item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items = append(f.items, items...)
	for _, i := range items {
		f.size += i.weight()
		f.newest = max(f.newest, i.Event.Seq)
	}
	if len(f.items) > 2*ringItems || f.size > 2*ringBytes { // cut rarely, and then by half
		drop := 0
		for len(f.items)-drop > ringItems || f.size > ringBytes && len(f.items)-drop > 1 {
			f.size -= f.items[drop].weight()
			drop++
		}
		f.items, f.first = append([]*Item(nil), f.items[drop:]...), f.first+uint64(drop)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *feed) stir(upto uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if upto <= max(f.newest, f.upto) {
		return
	}
	f.upto = upto
	close(f.changed)
	f.changed = make(chan struct{})
}

func (i *Item) weight() int {
	const overhead = 256
	if i.Delta != nil {
		return overhead + len(i.Delta.Text)
	}
	return overhead + len(i.Event.Payload)
}
