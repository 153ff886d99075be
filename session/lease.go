package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/store"
)

// lease is a server's right to write sessions. Actors live under it: once it is
// lost they end and write nothing more. That of a server that has its store for
// itself is never lost.
type lease struct {
	server Server
	good   time.Duration // how long after it was sent a renewal can be relied on; 0 is for ever

	ctx    context.Context //nolint:containedctx // the life of its actors
	stop   context.CancelCauseFunc
	writes context.Context //nolint:containedctx // outlives a clean stop; ends when the lease is lost
	cut    context.CancelCauseFunc
	actors sync.WaitGroup
	stale  *atomic.Uint64 // counts what the database refused under it

	begun   time.Time
	renewed atomic.Int64 // when the newest renewal was sent, counted from begun
	alarm   *time.Timer  // stops the actors when no renewal came in time
}

// errCut ends what is being written when a lease is lost.
var errCut = errors.New("the lease is over")

// newLease returns a lease that was asked for at begun.
func newLease(life context.Context, server Server, good time.Duration, begun time.Time, stale *atomic.Uint64) *lease {
	l := &lease{server: server, good: good, begun: begun, stale: stale}
	l.ctx, l.stop = context.WithCancelCause(fencing.Under(life, l))
	l.writes, l.cut = context.WithCancelCause(context.WithoutCancel(life))
	if good > 0 {
		l.alarm = time.AfterFunc(good-time.Since(begun), l.lose)
	}
	return l
}

// holds returns dormouse.ErrLeaseLost once the lease cannot be relied on any
// more, by the monotonic clock alone. Who was paused finds out here before he
// acts.
func (l *lease) holds() error {
	if l.good == 0 || l.writes.Err() == nil && time.Since(l.begun)-time.Duration(l.renewed.Load()) <= l.good {
		return nil
	}
	return dormouse.ErrLeaseLost
}

// extend counts a renewal that was sent at that time.
func (l *lease) extend(sent time.Time) {
	l.renewed.Store(int64(sent.Sub(l.begun)))
	l.alarm.Reset(l.good - time.Since(sent))
}

// lose ends the lease for good: first what is going on under it, then what is
// being written.
func (l *lease) lose() {
	crash.At(crash.LeaseLost)
	l.stop(dormouse.ErrLeaseLost)
	l.cut(errCut)
}

// end lets go of a lease under which nothing is left.
func (l *lease) end() {
	if l.alarm != nil {
		l.alarm.Stop()
	}
	l.stop(dormouse.ErrClosing)
	l.cut(errCut)
}

// errNoLease is told to who has waited long enough for the next lease.
var errNoLease = fmt.Errorf("this server has no lease now: %w", dormouse.ErrLeaseLost)

// Join makes this server one of those that share the store, and keeps it one
// until Close. Of a store for one server alone it already is the one.
func (s *Sessions) Join(ctx context.Context) error {
	if s.shared == nil {
		return nil
	}
	l, err := s.join(ctx)
	if err != nil {
		return err
	}
	s.keeping.Go(func() { s.keep(l) })
	s.running.Go(s.watch)
	s.running.Go(s.listen)
	if s.deps.Fencing != nil {
		s.running.Go(s.guard)
	}
	return nil
}

func (s *Sessions) join(ctx context.Context) (*lease, error) {
	begun := time.Now()
	server, err := s.shared.Join(ctx, s.deps.Server, s.deps.Lease)
	if err != nil {
		return nil, fmt.Errorf("join the servers of this store: %w", err)
	}
	// Nothing is begun under it before others can tell who does.
	if err := s.sign(server.Incarnation); err != nil {
		return nil, fmt.Errorf("join the servers of this store: %w", err)
	}
	l := newLease(s.ctx, server, s.deps.Lease-s.deps.Lease/4, begun, &s.counts.stale)
	s.deps.Logger.InfoContext(ctx, "lease taken", "server", server.Name, "incarnation", server.Incarnation)
	crash.At(crash.LeaseJoined)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = l
	close(s.joined)
	s.joined = make(chan struct{})
	return l, nil
}

// keep renews the lease until Close, and takes a new one whenever it is lost.
func (s *Sessions) keep(l *lease) {
	for l != nil {
		s.renew(l)
		if s.kept.Err() != nil {
			l.end()
			return
		}
		s.counts.lost.Add(1)
		s.deps.Logger.ErrorContext(s.kept, "lease lost", "incarnation", l.server.Incarnation, "actors", s.Loaded())
		s.forsake(l)
		if s.ctx.Err() != nil {
			return // Close has come; nothing is left to have a lease for
		}
		l = s.rejoin(l.server)
	}
}

// renew renews a lease until it is lost or Close has come.
func (s *Sessions) renew(l *lease) {
	for wait := s.deps.Lease/3 - time.Since(l.begun); ; {
		select {
		case <-s.kept.Done():
			return
		case <-l.writes.Done():
			return
		case <-time.After(wait):
		}
		crash.At(crash.LeaseRenewing)
		sent := time.Now()
		ctx, cancel := context.WithTimeout(l.writes, s.deps.Lease/4) // short of what is left, to try once more
		err := s.shared.Renew(ctx)
		cancel()
		switch {
		case err == nil:
			l.extend(sent)
			wait = s.deps.Lease/3 - time.Since(sent)
		case l.writes.Err() != nil:
			return
		case errors.Is(err, dormouse.ErrLeaseLost):
			l.lose()
			return
		default:
			s.deps.Logger.WarnContext(ctx, "lease not renewed", "error", err)
			wait = s.deps.Lease / 12
		}
	}
}

// forsake waits for the actors of a lost lease to be gone, and then says so to the other
// servers. One that cannot be stopped is waited for only so long: nobody else was there to
// end this server for it, and its epoch is an old one soon.
func (s *Sessions) forsake(l *lease) {
	s.mu.Lock()
	s.lease = nil
	clear(s.owed) // whoever owns what we owned, we do not
	s.mu.Unlock()
	l.lose()
	ctx, cancel := context.WithTimeout(s.kept, s.forsakeWithin())
	defer cancel()
	if err := wait(ctx, &l.actors); err != nil {
		s.deps.Logger.ErrorContext(ctx, "actors outlive their lease", "error", err)
	}
	if err := s.sign(0); err != nil {
		s.deps.Logger.ErrorContext(ctx, "others are not told that nothing goes on here", "error", err)
	}
}

// rejoin takes the next lease as soon as there is one to be had. It returns nil
// if Close comes first, or if this server gets none any more.
func (s *Sessions) rejoin(before Server) *lease {
	for {
		ctx, cancel := context.WithTimeout(s.kept, s.deps.Lease/2) // one that came later would be as good as over
		l, err := s.join(ctx)
		cancel()
		if err == nil {
			s.nudge()
			return l
		}
		s.deps.Logger.WarnContext(s.kept, "no lease", "error", err)
		if errors.Is(err, store.ErrCondemned) {
			s.condemned(before, err)
			return nil
		}
		if errors.Is(err, store.ErrNewer) { // nothing that this program does brings it back
			s.failed <- err
			return nil
		}
		if sleep.For(s.ctx, s.deps.Lease/6) != nil {
			return nil
		}
	}
}

// held waits a moment for a server between two leases to have the next one.
func (s *Sessions) held(ctx context.Context) error {
	var late <-chan time.Time
	for {
		s.mu.Lock()
		l, joined, closing := s.lease, s.joined, s.closing
		s.mu.Unlock()
		if l != nil {
			return nil
		}
		if closing {
			return dormouse.ErrClosing
		}
		if late == nil {
			late = time.After(s.deps.Lease)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return errNoLease
		case <-joined:
		}
	}
}

// Self is this server among those that share the store, as long as it has a
// lease.
func (s *Sessions) Self() (Server, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.shared == nil {
		return Server{}, false
	}
	return s.lease.server, s.lease.holds() == nil
}

// FleetNow is the time by the clock that all servers of a shared store go by, which
// is the database's. A server without a lease may have lost touch with it: with
// dormouse.ErrLeaseLost the time is none to vouch for.
func (s *Sessions) FleetNow() (time.Time, error) {
	if s.shared == nil {
		return time.Time{}, dormouse.ErrLeaseLost
	}
	if _, ok := s.Self(); !ok {
		return s.shared.Now(), dormouse.ErrLeaseLost
	}
	return s.shared.Now(), nil
}

// leave gives the lease up, once nothing is left under it.
func (s *Sessions) leave(ctx context.Context) error {
	if s.shared == nil {
		return nil
	}
	s.mu.Lock()
	l := s.lease
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	if err := wait(ctx, &l.actors); err != nil {
		return fmt.Errorf("stop what goes on beside the actors: %w", err)
	}
	if err := s.sign(0); err != nil {
		return err
	}
	crash.At(crash.LeaseLeaving)
	if err := s.shared.Leave(ctx); err != nil {
		return fmt.Errorf("leave the servers of this store: %w", err)
	}
	return nil
}

// release gives up the session of an actor that has left. If that cannot be
// known to have worked, the session is loaded again, so that it does not stay
// with a server that does nothing for it.
func (s *Sessions) release(a *Actor, cause error) {
	if a.epoch == 0 {
		if !errors.Is(cause, dormouse.ErrNotFound) {
			s.owe(a.id) // a claim that failed may have worked
		}
		return
	}
	ctx, cancel := context.WithTimeout(a.lease.writes, s.deps.Lease)
	defer cancel()
	crash.At(crash.LeaseReleasing)
	if err := s.shared.Release(ctx, a.id, a.epoch); err != nil {
		a.slog.WarnContext(ctx, "session not released", "error", err)
		s.owe(a.id)
	}
}

// owe has Run load a session that may be ours without anybody knowing.
func (s *Sessions) owe(id dormouse.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed[id] = true
}
