// Package feed passes what actors commit on to followers. Followers read history from the
// log by cursor and then live from a ring buffer that all followers of a session share. It
// exists apart from the actors, which come and go.
package feed

import (
	"sync"

	"github.com/dormouse-run/dormouse"
)

// Item is what a follower receives: an event of the log, or a delta on the way
// to one. It is shared by all followers; its JSON is made once.
type Item struct {
	Event dormouse.Event
	// Delta is set on fragments, which have no seq and may be lost.
	Delta *dormouse.Delta

	once sync.Once
	raw  []byte
}

// Relayed is what the server that has a session loaded sends to one whose followers
// follow it: an event, a delta, or only how far the log goes.
type Relayed struct {
	Event *dormouse.Event `json:"event,omitempty"`
	Delta *dormouse.Delta `json:"delta,omitempty"`
	Upto  uint64          `json:"upto,omitempty"`
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

// size is how much of the ring buffer the item takes.
func (i *Item) size() int {
	const overhead = 256
	if i.Delta != nil {
		return overhead + len(i.Delta.Text)
	}
	return overhead + len(i.Event.Payload)
}

func asItems(events []dormouse.Event) []*Item {
	items := make([]*Item, len(events))
	for i, e := range events {
		items[i] = &Item{Event: e}
	}
	return items
}
