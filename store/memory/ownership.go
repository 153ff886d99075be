package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// claim makes an incarnation the owner of a session and raises its epoch. That of a store
// which has not joined is 0, which means no owner.
func (b *base) claim(ss *session, me uint64, above store.Epoch) error {
	if me != 0 && !b.lives(me) {
		return dormouse.ErrLeaseLost
	}
	if owner := b.owner(ss); owner != nil && owner.Incarnation != me {
		return &store.ElsewhereError{Session: ss.index.Session, Owner: *owner}
	}
	if ss.index.Needs > dormouse.LogVersion {
		return &dormouse.NewerLogError{Session: ss.index.Session, Needs: ss.index.Needs}
	}
	ss.owner = me
	ss.epoch = max(ss.epoch, above) + 1
	return nil
}

// owner is the live server that owns a session, or nil.
func (b *base) owner(ss *session) *store.Server {
	if !b.lives(ss.owner) {
		return nil
	}
	owner := b.servers[ss.owner].Server
	return &owner
}

// Take makes this server the owner of due sessions without a live owner.
func (s *Server) Take(ctx context.Context, t time.Time, limit int, except ...dormouse.SessionID) (ids []dormouse.SessionID, err error) {
	err = s.write(ctx, "take due sessions", "", func(*session) error {
		if !s.base.lives(s.me) {
			return dormouse.ErrLeaseLost
		}
		found, err := s.list("", limit, func(i dormouse.SessionRow) bool {
			return due(i, t) && !slices.Contains(except, i.Session) && s.base.owner(s.base.sessions[i.Session]) == nil
		}, byDue)
		ids = names(found)
		for _, id := range ids {
			s.base.sessions[id].owner = s.me
		}
		return err
	})
	return ids, err
}

// Release gives up a session that this server owns under epoch.
func (s *Server) Release(ctx context.Context, id dormouse.SessionID, epoch store.Epoch) error {
	return s.write(ctx, "release", id, func(ss *session) error {
		if ss != nil && ss.owner == s.me && ss.epoch == epoch {
			ss.owner = 0
		}
		return nil
	})
}

// Where says how far sessions go and which live server owns them.
func (s *Server) Where(ctx context.Context, ids ...dormouse.SessionID) (places []store.Location, err error) {
	err = s.read(ctx, "look where sessions are", "", func(*session) error {
		for _, id := range ids {
			if ss := s.base.sessions[id]; ss != nil {
				places = append(places, store.Location{Session: id, Seq: ss.index.Seq, Owner: s.base.owner(ss)})
			}
		}
		return nil
	})
	return places, err
}

// listener is one call of Listen.
type listener struct {
	heard map[dormouse.SessionID]bool // guarded by base.mu
	wake  chan struct{}
}

func (l *listener) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// changed notifies listeners of a batch that was applied.
func (b *base) changed(batch store.Batch) {
	if len(batch.Events) == 0 {
		return
	}
	for l := range b.listeners {
		l.heard[batch.Session] = true
		l.signal()
	}
}

// Listen calls changed with sessions that have grown. The first call has none: the caller
// may have missed changes before it.
func (s *Server) Listen(ctx context.Context, changed func(ids []dormouse.SessionID)) error {
	l := &listener{heard: make(map[dormouse.SessionID]bool), wake: make(chan struct{}, 1)}
	err := s.write(ctx, "listen", "", func(*session) error {
		s.base.listeners[l] = true
		return nil
	})
	if err != nil {
		return err
	}
	defer func() {
		s.base.mu.Lock()
		defer s.base.mu.Unlock()
		delete(s.base.listeners, l)
	}()
	changed(nil)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.wake:
		}
		var ids []dormouse.SessionID
		err := s.write(ctx, "listen", "", func(*session) error {
			ids = slices.Sorted(maps.Keys(l.heard))
			clear(l.heard)
			return nil
		})
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			changed(ids)
		}
	}
}
