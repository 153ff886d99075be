package feed

import (
	"context"
	"fmt"
	"sync"

	"github.com/dormouse-run/dormouse"
)

// page is how many items a follower is given at once.
const page = 1000

// Follower reads one session by cursor: history first, then live, without a gap between.
// Its cursor is its only state.
type Follower struct {
	feeds  *Feeds
	ring   *ring
	id     dormouse.SessionID
	cursor uint64
	at     uint64 // the position in the ring buffer, once live
	live   bool
	readTo uint64          // how far the log was known to go when it was last read
	gone   <-chan struct{} // closed when no more will come; nil if that is not known
	why    error           // reported once gone is closed
	left   sync.Once
}

// Cursor is the last seq the follower was given.
func (f *Follower) Cursor() uint64 { return f.cursor }

// Close leaves the feed.
func (f *Follower) Close() {
	f.left.Do(func() {
		f.feeds.mu.Lock()
		defer f.feeds.mu.Unlock()
		if f.ring.followers--; f.ring.followers == 0 {
			delete(f.feeds.live, f.id)
		}
	})
}

// Next returns the next item, and waits for it if necessary. A live follower that falls
// out of the ring buffer is cut off with dormouse.ErrBehind; it comes back with its
// cursor.
func (f *Follower) Next(ctx context.Context) ([]*Item, error) {
	for {
		items, changed, err := f.take()
		if err != nil || len(items) > 0 {
			return items, err
		}
		if !f.live && f.joins() {
			continue
		}
		if !f.live {
			events, err := f.feeds.log.ReadPage(ctx, f.id, f.cursor, page)
			if err != nil {
				return nil, err
			}
			if len(events) > 0 {
				f.cursor = events[len(events)-1].Seq
				return asItems(events), nil
			}
			if f.enter() {
				continue
			}
			// There is more, unless it was removed before it could be read.
			if err := f.feeds.log.Exists(ctx, f.id); err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-changed:
		case <-f.gone:
			if items, _, err := f.take(); err != nil || len(items) > 0 {
				return items, err
			}
			return nil, fmt.Errorf("session %s has left this server: %w", f.id, f.why)
		}
	}
}

// take returns what the feed holds beyond the follower's place.
func (f *Follower) take() ([]*Item, <-chan struct{}, error) {
	f.ring.mu.Lock()
	defer f.ring.mu.Unlock()
	if f.ring.ended != nil {
		return nil, nil, f.ring.ended
	}
	if !f.live {
		return nil, f.ring.changed, nil
	}
	if f.at < f.ring.first {
		return nil, nil, dormouse.ErrBehind
	}
	rest := f.ring.items[f.at-f.ring.first:]
	rest = rest[:min(len(rest), page)]
	items := make([]*Item, 0, len(rest))
	for _, i := range rest {
		if i.Delta == nil && i.Event.Seq > f.cursor+1 {
			f.live = false // an event was committed and no notification came: the log has it
			break
		}
		f.at++
		if i.Delta == nil {
			if i.Event.Seq <= f.cursor {
				continue // already read from the log, which knew it first
			}
			f.cursor = i.Event.Seq
		}
		items = append(items, i)
	}
	if upto := f.ring.upto; len(items) == 0 && upto > max(f.cursor, f.readTo) {
		f.readTo, f.live = upto, false // what was written elsewhere is in the log
	}
	return items, f.ring.changed, nil
}

// joins makes a follower live that has its place in the feed, which needs no look
// at the log.
func (f *Follower) joins() bool {
	f.ring.mu.Lock()
	defer f.ring.mu.Unlock()
	for i, item := range f.ring.items {
		if item.Delta == nil && item.Event.Seq == f.cursor+1 {
			f.at, f.live = f.ring.first+uint64(i), true
			return true
		}
	}
	return false
}

// enter makes a follower that has read all history live, if the feed goes on
// where it stands. If the feed is further on already, there is more to read.
func (f *Follower) enter() bool {
	f.ring.mu.Lock()
	defer f.ring.mu.Unlock()
	at := len(f.ring.items)
	for i, item := range f.ring.items {
		if item.Delta != nil || item.Event.Seq <= f.cursor {
			continue
		}
		if item.Event.Seq != f.cursor+1 {
			return false
		}
		at = i
		break
	}
	f.at, f.live = f.ring.first+uint64(at), true
	return true
}
