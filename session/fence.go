package session

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// letGoWithin is how long a server may take to let go of what it had when its lease has
// run out. One that stands still is not waited for.
const letGoWithin = 3 * time.Second

// fences is what a server knows of others that hold on after their lease.
type fences struct {
	alone chan struct{} // taken by who ends others: one at a time

	mu   sync.Mutex
	seen map[uint64]time.Time // guarded by mu; since when an incarnation is known to hold on
	told map[uint64]bool      // guarded by mu; of which it was said that nobody can end it
}

func newFences() *fences {
	return &fences{alone: make(chan struct{}, 1), seen: make(map[uint64]time.Time), told: make(map[uint64]bool)}
}

// fence returns once no server works on that has no lease any more: each has let go of
// all it had, or was ended. What is claimed after a lease ran out is left alone until
// then, for a call that was begun under it may be carried out at any time.
//
// Some cannot be ended. Sessions are not kept waiting for those: the epochs hold them
// off, and the locks of what they were about to do.
func (s *Sessions) fence(ctx context.Context) error {
	if s.deps.Fencing == nil {
		return nil
	}
	if held, err := s.holdOn(ctx); err != nil || len(held) == 0 {
		return err
	}
	select {
	case s.fences.alone <- struct{}{}:
		defer func() { <-s.fences.alone }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		held, err := s.holdOn(ctx)
		if err != nil || len(held) == 0 {
			return err
		}
		for _, h := range held {
			if h.Stopped() || s.fences.since(h.Incarnation) > letGoWithin {
				if err := s.end(ctx, h); err != nil {
					return err
				}
			}
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// holdOn lists the servers that have no lease any more and have not let go, but for those
// that cannot be ended.
func (s *Sessions) holdOn(ctx context.Context) ([]fencing.Holder, error) {
	held, err := s.deps.Fencing.Others()
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "servers that hold on are not known", "error", err)
		return nil, nil // the epochs hold them off
	}
	if len(held) == 0 {
		s.fences.keep(nil)
		return nil, nil
	}
	live, err := s.shared.Servers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look who lives: %w", err)
	}
	held = slices.DeleteFunc(held, func(h fencing.Holder) bool {
		return slices.ContainsFunc(live, func(l Server) bool { return l.Incarnation == h.Incarnation })
	})
	return s.fences.keep(held), nil
}

// keep forgets all but these, and returns those of them that may be ended.
func (f *fences) keep(held []fencing.Holder) (open []fencing.Holder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := make(map[uint64]bool, len(held))
	for _, h := range held {
		is[h.Incarnation] = true
		if _, ok := f.seen[h.Incarnation]; !ok {
			f.seen[h.Incarnation] = time.Now()
		}
		if !f.told[h.Incarnation] {
			open = append(open, h)
		}
	}
	for n := range f.seen {
		if !is[n] {
			delete(f.seen, n)
			delete(f.told, n)
		}
	}
	return open
}

// since is how long an incarnation is known to hold on.
func (f *fences) since(incarnation uint64) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.seen[incarnation])
}

// end ends a server that holds on after its lease.
func (s *Sessions) end(ctx context.Context, h fencing.Holder) error {
	var failed error
	ended, err := s.deps.Fencing.End(ctx, h, func(ctx context.Context) (done bool, err error) {
		done, failed = s.shared.Condemn(ctx, h.Incarnation)
		return done, failed
	})
	switch {
	case failed != nil:
		return fmt.Errorf("condemn incarnation %d: %w", h.Incarnation, failed)
	case err != nil:
		s.deps.Logger.ErrorContext(ctx, "a server holds on after its lease and cannot be ended; end it", "incarnation", h.Incarnation, "pid", h.PID, "error", err)
		s.fences.mu.Lock()
		s.fences.told[h.Incarnation] = true
		s.fences.mu.Unlock()
		return nil
	case !ended:
		return nil // it let go, or has a lease
	}
	s.counts.ended.Add(1)
	s.deps.Logger.ErrorContext(ctx, "a server held on after its lease and was ended", "incarnation", h.Incarnation, "pid", h.PID)
	if err := s.shared.Absolve(ctx, h.Incarnation); err != nil {
		s.deps.Logger.WarnContext(ctx, "a server that ended stays on record", "incarnation", h.Incarnation, "error", err)
	}
	return nil
}

// guard ends servers that hold on, whether or not anybody wants what they have: locks
// that no session has are freed too.
func (s *Sessions) guard() {
	for {
		if sleep.For(s.ctx, min(s.deps.Lease/6, patrol)) != nil {
			return
		}
		if _, ok := s.Self(); !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, 2*letGoWithin)
		if err := s.fence(ctx); err != nil && s.ctx.Err() == nil {
			s.deps.Logger.DebugContext(ctx, "servers that hold on not ended", "error", err)
		}
		cancel()
	}
}

// forsakeWithin is how long a server waits for its actors when it has lost its lease. By
// then another server, if there is one, has ended it for holding on.
func (s *Sessions) forsakeWithin() time.Duration {
	if s.deps.Fencing == nil {
		return s.deps.Lease
	}
	return s.deps.Lease + 2*letGoWithin
}

// sign says which incarnation this server works under; 0 that nothing goes on.
func (s *Sessions) sign(incarnation uint64) error {
	if s.deps.Fencing == nil {
		return nil
	}
	return s.deps.Fencing.Sign(incarnation)
}

// Failed is told once if this server must end, because it gets no lease any more: another
// one is about to end it, or has brought the database to a version that it may not use.
func (s *Sessions) Failed() <-chan error { return s.failed }

// condemned has this server end, which was condemned before it came to itself again. It
// will not join any more, so that nobody needs to remember.
func (s *Sessions) condemned(before Server, err error) {
	s.failed <- err
	ctx, cancel := context.WithTimeout(s.kept, s.deps.Lease)
	defer cancel()
	if err := s.shared.Absolve(ctx, before.Incarnation); err != nil {
		s.deps.Logger.WarnContext(ctx, "this server stays on record", "incarnation", before.Incarnation, "error", err)
	}
}

// Enter counts one more thing that goes on under the lease.
func (l *lease) Enter() (leave func()) {
	l.actors.Add(1)
	return l.actors.Done
}

// Over ends when nothing may be done under the lease any more.
func (l *lease) Over() context.Context { return l.writes }

// Under does something under the lease of now that no actor does: to what all servers
// share, or for a request. It is told to end with the lease, which is not let go of
// before it has.
func (s *Sessions) Under(ctx context.Context, f func(context.Context) error) error {
	if err := s.held(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	l := s.lease
	if l == nil || s.closing {
		s.mu.Unlock()
		return dormouse.ErrClosing
	}
	leave := l.Enter()
	s.mu.Unlock()
	defer leave()
	if err := l.holds(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(fencing.Under(ctx, l))
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	return f(ctx)
}
