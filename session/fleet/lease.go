package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/fencing"
)

// Lease is a server's right to write sessions. Actors live under it: once it is
// lost they end and write nothing more. That of a server that has its store for
// itself is never lost.
type Lease struct {
	server Server
	good   time.Duration // how long after it was sent a renewal can be relied on; 0 is for ever

	ctx     context.Context //nolint:containedctx // the life of its actors
	stop    context.CancelCauseFunc
	writes  context.Context //nolint:containedctx // outlives a clean stop; ends when the lease is lost
	cut     context.CancelCauseFunc
	entered sync.WaitGroup
	stale   *atomic.Uint64 // counts what the database refused under it

	begun   time.Time
	renewed atomic.Int64 // when the newest renewal was sent, counted from begun
	alarm   *time.Timer  // stops the actors when no renewal came in time
}

// ErrCut is the cause with which writing ends when a lease is lost.
var ErrCut = errors.New("the lease is over")

// newLease returns a lease that was asked for at begun.
func newLease(life context.Context, server Server, good time.Duration, begun time.Time, stale *atomic.Uint64) *Lease {
	l := &Lease{server: server, good: good, begun: begun, stale: stale}
	l.ctx, l.stop = context.WithCancelCause(fencing.Under(life, l))
	l.writes, l.cut = context.WithCancelCause(context.WithoutCancel(life))
	if good > 0 {
		l.alarm = time.AfterFunc(good-time.Since(begun), l.lose)
	}
	return l
}

// Holds returns dormouse.ErrLeaseLost once the lease cannot be relied on any
// more, by the monotonic clock alone. A server that was paused finds out here before it
// acts.
func (l *Lease) Holds() error {
	if l.good == 0 || l.writes.Err() == nil && time.Since(l.begun)-time.Duration(l.renewed.Load()) <= l.good {
		return nil
	}
	return dormouse.ErrLeaseLost
}

// Context is the life of what goes on under the lease. It ends with the lease, or when the
// server stops.
func (l *Lease) Context() context.Context { return l.ctx }

// Writes is the context of durable writes. It outlives a clean stop and ends when the lease
// is lost.
func (l *Lease) Writes() context.Context { return l.writes }

// CountStale counts a write that the database refused because a newer owner has written.
func (l *Lease) CountStale() { l.stale.Add(1) }

// Enter counts one more thing that goes on under the lease.
func (l *Lease) Enter() (leave func()) {
	l.entered.Add(1)
	return l.entered.Done
}

// Over ends when nothing may be done under the lease any more.
func (l *Lease) Over() context.Context { return l.writes }

// extend counts a renewal that was sent at that time.
func (l *Lease) extend(sent time.Time) {
	l.renewed.Store(int64(sent.Sub(l.begun)))
	l.alarm.Reset(l.good - time.Since(sent))
}

// lose ends the lease for good: first the work under it, then the writes.
func (l *Lease) lose() {
	crash.At(crash.LeaseLost)
	l.stop(dormouse.ErrLeaseLost)
	l.cut(ErrCut)
}

// end gives up a lease under which nothing is left.
func (l *Lease) end() {
	if l.alarm != nil {
		l.alarm.Stop()
	}
	l.stop(dormouse.ErrClosing)
	l.cut(ErrCut)
}
