package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
)

// slots bounds how many sandboxes are awake at once. A session that needs one when all
// are taken waits, and the session that has been idle the longest is evicted; one at
// work is not. The same happens when a server finds more sandboxes awake than it may
// have.
type slots struct {
	limit    int                            // no bound if 0
	evict    func(dormouse.SessionID) error // has a session hibernate, which has only begun when it returns
	done     <-chan struct{}
	evicting sync.WaitGroup

	mu      sync.Mutex
	held    map[dormouse.SessionID]*slot // guarded by mu
	waiting []slotRequest                // guarded by mu; first come, first served
}

// slot is a sandbox that is awake.
type slot struct {
	idle     time.Time // since when it has not been in use, zero if it is
	stopping bool      // it will be free soon
	spared   bool      // its eviction was refused a moment ago
}

type slotRequest struct {
	id      dormouse.SessionID
	granted chan struct{}
}

// evictAgain is how long a session that refused its eviction is left alone.
const evictAgain = time.Second

func newSlots(limit int, done <-chan struct{}, evict func(dormouse.SessionID) error) *slots {
	return &slots{limit: limit, done: done, evict: evict, held: make(map[dormouse.SessionID]*slot)}
}

// TryAcquire takes a slot if there is one. A session that has one keeps it.
func (s *slots) TryAcquire(id dormouse.SessionID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tryLocked(id)
}

func (s *slots) tryLocked(id dormouse.SessionID) bool {
	if _, has := s.held[id]; !has && s.limit > 0 && len(s.held)+len(s.waiting) >= s.limit {
		return false
	}
	s.held[id] = new(slot)
	return true
}

// Acquire waits for a slot.
func (s *slots) Acquire(ctx context.Context, id dormouse.SessionID) error {
	s.mu.Lock()
	if s.tryLocked(id) {
		s.mu.Unlock()
		return nil
	}
	w := slotRequest{id: id, granted: make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.evictIdle()
	s.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(o slotRequest) bool { return o.granted == w.granted })
	select {
	case <-w.granted: // while mu was not held
		return nil
	default:
		return context.Cause(ctx)
	}
}

// SetIdle says of a session with a sandbox since when it is idle, zero if it is not.
func (s *slots) SetIdle(id dormouse.SessionID, idle time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.held[id]
	switch {
	case t == nil:
		s.held[id] = &slot{idle: idle}
	case t.idle.Equal(idle):
		return
	default:
		t.idle, t.spared = idle, false
	}
	s.evictIdle()
}

// Adopt gives a slot to a session whose sandbox was found awake, unless it has one.
func (s *slots) Adopt(id dormouse.SessionID, idle time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[id] == nil {
		s.held[id] = &slot{idle: idle}
		s.evictIdle()
	}
}

// SetStopping says that a session is hibernating, so that its slot will be free.
func (s *slots) SetStopping(id dormouse.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[id] = &slot{stopping: true}
}

// Release frees a slot for the session that has waited the longest.
func (s *slots) Release(id dormouse.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, id)
	for len(s.waiting) > 0 && len(s.held) < s.limit {
		next := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.held[next.id] = new(slot)
		close(next.granted)
	}
	s.evictIdle()
}

// evictIdle evicts as many idle sessions as slots are missing. The caller holds mu.
func (s *slots) evictIdle() {
	if s.limit == 0 {
		return
	}
	missing := len(s.held) + len(s.waiting) - s.limit
	for _, t := range s.held {
		if t.stopping {
			missing--
		}
	}
	for ; missing > 0; missing-- {
		id, t := s.longestIdle()
		if t == nil {
			return
		}
		t.stopping = true
		s.evicting.Go(func() { s.tryEvict(id, t) })
	}
}

// longestIdle is the slot that has not been in use for the longest time, nil if all
// are in use. The caller holds mu.
func (s *slots) longestIdle() (id dormouse.SessionID, idlest *slot) {
	for other, t := range s.held {
		if !t.idle.IsZero() && !t.stopping && !t.spared && (idlest == nil || t.idle.Before(idlest.idle)) {
			id, idlest = other, t
		}
	}
	return id, idlest
}

// tryEvict evicts a session. One that refuses is spared for a while, and the next is
// tried.
func (s *slots) tryEvict(id dormouse.SessionID, t *slot) {
	if s.evict(id) == nil {
		return // its slot is free when its sandbox has stopped
	}
	s.setSpared(t, true)
	select {
	case <-s.done:
	case <-time.After(evictAgain):
		s.setSpared(t, false)
	}
}

func (s *slots) setSpared(t *slot, spared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.stopping, t.spared = t.stopping && !spared, spared
	s.evictIdle()
}

// count says how many sandboxes are awake, and how many sessions wait for one.
func (s *slots) count() (taken, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held), len(s.waiting)
}
