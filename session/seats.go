package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
)

// seats bounds how many sandboxes are awake at once. Who needs one when all are
// taken waits, and the session that has been idle the longest is asked to leave;
// one at work is not. So it is when a server finds more sandboxes awake than it
// may have.
type seats struct {
	most   int                            // no bound if 0
	plead  func(dormouse.SessionID) error // asks a session to leave, which it has not yet done when that returns
	closed <-chan struct{}
	asking sync.WaitGroup

	mu      sync.Mutex
	taken   map[dormouse.SessionID]*seat // guarded by mu
	waiting []waitingSeat                // guarded by mu; first come, first served
}

// seat is a sandbox that is awake.
type seat struct {
	idle    time.Time // since when nobody uses it, zero if somebody does
	leaving bool      // it will be free soon
	spared  bool      // it was asked for in vain a moment ago
}

type waitingSeat struct {
	id      dormouse.SessionID
	granted chan struct{}
}

// pleadAgain is how long a session that would not leave is left alone.
const pleadAgain = time.Second

func newSeats(most int, closed <-chan struct{}, plead func(dormouse.SessionID) error) *seats {
	return &seats{most: most, closed: closed, plead: plead, taken: make(map[dormouse.SessionID]*seat)}
}

// TryAcquire takes a seat if there is one. A session that has one keeps it.
func (s *seats) TryAcquire(id dormouse.SessionID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tryLocked(id)
}

func (s *seats) tryLocked(id dormouse.SessionID) bool {
	if _, has := s.taken[id]; !has && s.most > 0 && len(s.taken)+len(s.waiting) >= s.most {
		return false
	}
	s.taken[id] = new(seat)
	return true
}

// Acquire waits for a seat.
func (s *seats) Acquire(ctx context.Context, id dormouse.SessionID) error {
	s.mu.Lock()
	if s.tryLocked(id) {
		s.mu.Unlock()
		return nil
	}
	w := waitingSeat{id: id, granted: make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.settle()
	s.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(o waitingSeat) bool { return o.granted == w.granted })
	select {
	case <-w.granted: // between the two
		return nil
	default:
		return context.Cause(ctx)
	}
}

// SetIdle says of a session with a sandbox since when it is idle, zero if it is not.
func (s *seats) SetIdle(id dormouse.SessionID, idle time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.taken[id]
	switch {
	case t == nil:
		s.taken[id] = &seat{idle: idle}
	case t.idle.Equal(idle):
		return
	default:
		t.idle, t.spared = idle, false
	}
	s.settle()
}

// Adopt seats a session whose sandbox was awake already, unless it has spoken for
// itself.
func (s *seats) Adopt(id dormouse.SessionID, idle time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[id] == nil {
		s.taken[id] = &seat{idle: idle}
		s.settle()
	}
}

// SetStopping says that a session is on its way to leave.
func (s *seats) SetStopping(id dormouse.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[id] = &seat{leaving: true}
}

// Release gives a seat to who has waited the longest.
func (s *seats) Release(id dormouse.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, id)
	for len(s.waiting) > 0 && len(s.taken) < s.most {
		next := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.taken[next.id] = new(seat)
		close(next.granted)
	}
	s.settle()
}

// settle asks as many to leave as seats are missing. The caller holds mu.
func (s *seats) settle() {
	if s.most == 0 {
		return
	}
	missing := len(s.taken) + len(s.waiting) - s.most
	for _, t := range s.taken {
		if t.leaving {
			missing--
		}
	}
	for ; missing > 0; missing-- {
		id, t := s.idlest()
		if t == nil {
			return
		}
		t.leaving = true
		s.asking.Go(func() { s.ask(id, t) })
	}
}

// idlest is the seat that nobody has used for the longest time, nil if all are in
// use. The caller holds mu.
func (s *seats) idlest() (id dormouse.SessionID, idlest *seat) {
	for other, t := range s.taken {
		if !t.idle.IsZero() && !t.leaving && !t.spared && (idlest == nil || t.idle.Before(idlest.idle)) {
			id, idlest = other, t
		}
	}
	return id, idlest
}

// ask asks a session to leave. One that does not is spared for a while, and the
// next is asked.
func (s *seats) ask(id dormouse.SessionID, t *seat) {
	if s.plead(id) == nil {
		return // it leaves when its sandbox has stopped
	}
	s.spare(t, true)
	select {
	case <-s.closed:
	case <-time.After(pleadAgain):
		s.spare(t, false)
	}
}

func (s *seats) spare(t *seat, spared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.leaving, t.spared = t.leaving && !spared, spared
	s.settle()
}

// count says how many sandboxes are awake, and how many sessions wait for one.
func (s *seats) count() (taken, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken), len(s.waiting)
}
