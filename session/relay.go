package session

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/feed"
	"github.com/dormouse-run/dormouse/store"
)

const (
	// lookEvery is how often a server looks for what it was not told about the
	// sessions that are followed here and loaded elsewhere.
	lookEvery = time.Second
	// lookSoon is how long requests to look are gathered.
	lookSoon = 20 * time.Millisecond
	// relayAgain is how long a relay that ended waits for the session to be
	// somewhere; one that was hardly there is left to the next round.
	relayAgain = 100 * time.Millisecond
)

// looks gathers the sessions that should be looked for before the next round.
type looks struct {
	kick chan struct{}

	mu  sync.Mutex
	ids map[dormouse.SessionID]bool // guarded by mu
}

func newLooks() *looks {
	return &looks{kick: make(chan struct{}, 1), ids: make(map[dormouse.SessionID]bool)}
}

func (l *looks) add(ids ...dormouse.SessionID) {
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

func (l *looks) take() []dormouse.SessionID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := slices.Collect(maps.Keys(l.ids))
	clear(l.ids)
	return ids
}

// look has those of the sessions looked for that somebody follows here.
func (s *Sessions) look(ids ...dormouse.SessionID) {
	if s.shared == nil {
		return
	}
	if ids = s.feeds.Among(ids); len(ids) > 0 {
		s.looks.add(ids...)
	}
}

// listen has sessions looked for as soon as another server has written them.
func (s *Sessions) listen() {
	for {
		err := s.shared.Listen(s.ctx, func(ids []dormouse.SessionID) {
			if len(ids) == 0 { // it may have missed any
				ids = s.feeds.Followed()
			}
			s.look(ids...)
		})
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(time.Second):
			s.deps.Logger.WarnContext(s.ctx, "not listening, only looking", "error", err)
		}
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

// watch brings what other servers write to those who follow here. A relay is
// quick and carries deltas; looking at the log is the net under it.
func (s *Sessions) watch() {
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
		case <-s.ctx.Done():
			return
		case <-round.C:
			ids = s.away(s.feeds.Followed())
			drop(relays, ids)
		case <-s.looks.kick:
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(lookSoon):
			}
			for _, id := range s.away(s.feeds.Among(s.looks.take())) {
				if r := relays[id]; r == nil || r.over() {
					ids = append(ids, id)
				}
			}
		}
		if err := s.lookAt(ids, relays); err != nil && s.ctx.Err() == nil {
			s.deps.Logger.WarnContext(s.ctx, "followed sessions not looked for", "error", err)
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

// lookAt finds out where sessions are and how far they go.
func (s *Sessions) lookAt(ids []dormouse.SessionID, relays map[dormouse.SessionID]*relay) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.deps.Lease)
	defer cancel()
	places, err := s.shared.Where(ctx, ids...)
	if err != nil {
		return err
	}
	me, ok := s.Self()
	for _, p := range places {
		s.feeds.Advance(p.Session, p.Seq)
		r := relays[p.Session]
		if r != nil && (r.over() || p.Owner == nil || p.Owner.Incarnation != r.owner) {
			r.stop()
			<-r.done
			delete(relays, p.Session)
			r = nil
		}
		if r == nil && ok && p.Owner != nil && p.Owner.Incarnation != me.Incarnation {
			relays[p.Session] = s.startRelay(Route{From: me, To: *p.Owner}, p)
		}
	}
	return nil
}

// startRelay streams a session from its owner into the feed here.
func (s *Sessions) startRelay(route Route, p store.Place) *relay {
	ctx, stop := context.WithCancel(s.ctx)
	r := &relay{owner: route.To.Incarnation, stop: stop, done: make(chan struct{})}
	after := max(p.Seq, s.feeds.Newest(p.Session))
	s.running.Go(func() {
		began := time.Now()
		err := s.deps.Peers.Follow(ctx, route, p.Session, after, func(told feed.Relayed) { s.feeds.Relay(p.Session, told) })
		s.deps.Logger.DebugContext(ctx, "relay ended", "session", p.Session, "server", route.To.Name, "error", err)
		close(r.done)
		if time.Since(began) < lookEvery {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(relayAgain):
			s.look(p.Session)
		}
	})
	return r
}
