package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/store"
)

const (
	// lookEvery is how often a server looks up the sessions that are followed here and
	// loaded elsewhere, in case it missed a notification.
	lookEvery = time.Second
	// lookSoon is how long requests to look are gathered.
	lookSoon = 20 * time.Millisecond
	// relayAgain is how long a relay that has ended waits for the session to be loaded
	// somewhere. One that ended almost at once waits for the next round.
	relayAgain = 100 * time.Millisecond
)

// lookups gathers the sessions that should be looked for before the next round.
type lookups struct {
	kick chan struct{}

	mu  sync.Mutex
	ids map[dormouse.SessionID]bool // guarded by mu
}

func newLookups() *lookups {
	return &lookups{kick: make(chan struct{}, 1), ids: make(map[dormouse.SessionID]bool)}
}

func (l *lookups) add(ids ...dormouse.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.ids[id] = true
	}
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *lookups) take() []dormouse.SessionID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := slices.Collect(maps.Keys(l.ids))
	clear(l.ids)
	return ids
}

// LookUp has those of the sessions that are followed here looked up soon: where they are
// and how far their logs go.
func (f *Fleet) LookUp(ids ...dormouse.SessionID) {
	if f.Alone() {
		return
	}
	if ids = f.config.Feeds.Among(ids); len(ids) > 0 {
		f.lookups.add(ids...)
	}
}

// listen looks sessions up as soon as another server has written them.
func (f *Fleet) listen() {
	for {
		err := f.config.Shared.Listen(f.life, func(ids []dormouse.SessionID) {
			if len(ids) == 0 { // it may have missed any
				ids = f.config.Feeds.Followed()
			}
			f.LookUp(ids...)
		})
		if sleep.For(f.life, time.Second) != nil {
			return
		}
		f.config.Logger.WarnContext(f.life, "not listening, only looking", "error", err)
	}
}

// relay is a stream from the server that has a session loaded.
type relay struct {
	owner uint64 // its incarnation
	stop  context.CancelFunc
	done  chan struct{}
}

func (r *relay) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// watch gets what other servers write to followers here. A relay is quick and carries
// deltas; reading the log makes up for whatever a relay loses.
func (f *Fleet) watch() {
	relays := make(map[dormouse.SessionID]*relay)
	defer func() {
		for _, r := range relays {
			r.stop()
			<-r.done
		}
	}()
	round := time.NewTicker(lookEvery)
	defer round.Stop()
	for {
		var ids []dormouse.SessionID
		select {
		case <-f.life.Done():
			return
		case <-round.C:
			ids = f.config.Unloaded(f.config.Feeds.Followed())
			drop(relays, ids)
		case <-f.lookups.kick:
			if sleep.For(f.life, lookSoon) != nil {
				return
			}
			for _, id := range f.config.Unloaded(f.config.Feeds.Among(f.lookups.take())) {
				if r := relays[id]; r == nil || r.over() {
					ids = append(ids, id)
				}
			}
		}
		if err := f.lookUp(ids, relays); err != nil && f.life.Err() == nil {
			f.config.Logger.WarnContext(f.life, "followed sessions not looked for", "error", err)
		}
	}
}

// drop ends the relays of sessions that are not to be kept.
func drop(relays map[dormouse.SessionID]*relay, keep []dormouse.SessionID) {
	kept := make(map[dormouse.SessionID]bool, len(keep))
	for _, id := range keep {
		kept[id] = true
	}
	for id, r := range relays {
		if !kept[id] {
			r.stop()
			<-r.done
			delete(relays, id)
		}
	}
}

// lookUp finds out where sessions are and how far they go.
func (f *Fleet) lookUp(ids []dormouse.SessionID, relays map[dormouse.SessionID]*relay) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(f.life, f.config.TTL)
	defer cancel()
	places, err := f.config.Shared.Where(ctx, ids...)
	if err != nil {
		return err
	}
	me, ok := f.Self()
	for _, p := range places {
		f.config.Feeds.Advance(p.Session, p.Seq)
		r := relays[p.Session]
		if r != nil && (r.over() || p.Owner == nil || p.Owner.Incarnation != r.owner) {
			r.stop()
			<-r.done
			delete(relays, p.Session)
			r = nil
		}
		if r == nil && ok && p.Owner != nil && p.Owner.Incarnation != me.Incarnation {
			relays[p.Session] = f.startRelay(Route{From: me, To: *p.Owner}, p)
		}
	}
	return nil
}

// startRelay streams a session from its owner into the feed here.
func (f *Fleet) startRelay(route Route, p store.Location) *relay {
	ctx, stop := context.WithCancel(f.life)
	r := &relay{owner: route.To.Incarnation, stop: stop, done: make(chan struct{})}
	after := max(p.Seq, f.config.Feeds.Newest(p.Session))
	f.running.Go(func() {
		began := time.Now()
		err := f.config.Peers.Follow(ctx, route, p.Session, after, func(relayed feed.Relayed) { f.config.Feeds.Relay(p.Session, relayed) })
		f.config.Logger.DebugContext(ctx, "relay ended", "session", p.Session, "server", route.To.Name, "error", err)
		close(r.done)
		if time.Since(began) < lookEvery {
			return
		}
		if sleep.For(ctx, relayAgain) == nil {
			f.LookUp(p.Session)
		}
	})
	return r
}
