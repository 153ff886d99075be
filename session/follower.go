package session

import (
	"context"
	"fmt"
	"sync"

	"github.com/dormouse-run/dormouse"
)

// Follower reads one session by cursor: history first, then live, without a gap
// between. It holds nothing but its place.
type Follower struct {
	deps   *Config
	feeds  *feeds
	feed   *feed
	id     dormouse.SessionID
	cursor uint64
	at     uint64 // the position in the feed, once live
	live   bool
	looked uint64          // how far the log was known to go when it was last looked at
	gone   <-chan struct{} // closed when no more will come; nil if that is not known
	close  sync.Once
}

// follow joins the feed before anything is read, so that nothing falls between
// reading and listening.
func (f *feeds) follow(deps *Config, id dormouse.SessionID, after uint64) *Follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	feed1 := f.live[id]
	if feed1 == nil {
		feed1 = &feed{changed: make(chan struct{})}
		f.live[id] = feed1
	}
	feed1.followers++
	return &Follower{deps: deps, feeds: f, feed: feed1, id: id, cursor: after}
}

// Cursor is the last seq the follower was given.
func (f *Follower) Cursor() uint64 { return f.cursor }

// Close leaves the feed.
func (f *Follower) Close() {
	f.close.Do(func() {
		f.feeds.mu.Lock()
		defer f.feeds.mu.Unlock()
		if f.feed.followers--; f.feed.followers == 0 {
			delete(f.feeds.live, f.id)
		}
	})
}

// Next returns what comes next, waiting for it if need be. A follower that was
// live and fell out of what is kept is cut off with dormouse.ErrBehind; it
// comes back with its cursor.
func (f *Follower) Next(ctx context.Context) ([]*Item, error) {
	for {
		items, changed, err := f.take()
		if err != nil || len(items) > 0 {
			return items, err
		}
		if !f.live && f.meets() {
			continue
		}
		if !f.live {
			events, err := readSome(ctx, f.deps, f.id, f.cursor, page)
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
			if _, err := f.deps.Store.Session(ctx, f.id); err != nil {
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
			return nil, fmt.Errorf("session %s has left this server: %w", f.id, ErrUnreached)
		}
	}
}

// take returns what the feed holds beyond the follower's place.
func (f *Follower) take() ([]*Item, <-chan struct{}, error) {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	if f.feed.ended != nil {
		return nil, nil, f.feed.ended
	}
	if !f.live {
		return nil, f.feed.changed, nil
	}
	if f.at < f.feed.first {
		return nil, nil, dormouse.ErrBehind
	}
	rest := f.feed.items[f.at-f.feed.first:]
	rest = rest[:min(len(rest), page)]
	items := make([]*Item, 0, len(rest))
	for _, i := range rest {
		if i.Delta == nil && i.Event.Seq > f.cursor+1 {
			f.live = false // something was committed and nobody here was told: the log has it
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
	if upto := f.feed.upto; len(items) == 0 && upto > max(f.cursor, f.looked) {
		f.looked, f.live = upto, false // what was written elsewhere is in the log
	}
	return items, f.feed.changed, nil
}

// meets makes a follower live that has its place in the feed, which needs no look
// at the log.
func (f *Follower) meets() bool {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	for i, item := range f.feed.items {
		if item.Delta == nil && item.Event.Seq == f.cursor+1 {
			f.at, f.live = f.feed.first+uint64(i), true
			return true
		}
	}
	return false
}

// enter makes a follower that has read all history live, if the feed goes on
// where it stands. If the feed is further on already, there is more to read.
func (f *Follower) enter() bool {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	at := len(f.feed.items)
	for i, item := range f.feed.items {
		if item.Delta != nil || item.Event.Seq <= f.cursor {
			continue
		}
		if item.Event.Seq != f.cursor+1 {
			return false
		}
		at = i
		break
	}
	f.at, f.live = f.feed.first+uint64(at), true
	return true
}

func asItems(events []dormouse.Event) []*Item {
	items := make([]*Item, len(events))
	for i, e := range events {
		items[i] = &Item{Event: e}
	}
	return items
}
