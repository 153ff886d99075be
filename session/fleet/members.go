package fleet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse"
)

// members is the servers that share the store, as they were a moment ago.
type members struct {
	mu    sync.Mutex
	at    time.Time       // guarded by mu
	known map[uint64]bool // guarded by mu; by incarnation
}

// CheckMember refuses an incarnation that is none of the servers that share the store, with
// ErrStaleSender. What it asks for, it may ask for late.
func (f *Fleet) CheckMember(ctx context.Context, incarnation uint64) error {
	if f.Alone() {
		return dormouse.ErrLeaseLost
	}
	const perLease = 3 // looks in the time of a lease
	asked := time.Now()
	if f.members.has(incarnation, asked.Add(-f.config.TTL/perLease)) {
		return nil
	}
	servers, err := f.config.Shared.Servers(ctx)
	if err != nil {
		return fmt.Errorf("list servers: %w", err)
	}
	f.members.set(servers, asked)
	if !f.members.has(incarnation, asked) {
		return fmt.Errorf("incarnation %d has no lease: %w", incarnation, ErrStaleSender)
	}
	return nil
}

// has reports whether an incarnation was found among the servers since a time.
func (m *members) has(incarnation uint64, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[incarnation] && !m.at.Before(since)
}

func (m *members) set(servers []Server, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.known = at, make(map[uint64]bool, len(servers))
	for _, s := range servers {
		m.known[s.Incarnation] = true
	}
}

// Counts is what happened among the servers of a shared store, as this one saw
// it.
type Counts struct {
	// Stale appends were refused: a server with a newer epoch wrote the session.
	Stale uint64
	// Taken sessions were due and had no live owner.
	Taken uint64
	// Forwarded commands were put to another server.
	Forwarded uint64
	// Lost leases stopped all actors.
	Lost uint64
	// Ended servers had held on after their lease.
	Ended uint64
}

type counters struct{ stale, taken, forwarded, lost, ended atomic.Uint64 }

// Counts returns what has happened so far.
func (f *Fleet) Counts() Counts {
	c := &f.counts
	return Counts{Stale: c.stale.Load(), Taken: c.taken.Load(), Forwarded: c.forwarded.Load(), Lost: c.lost.Load(), Ended: c.ended.Load()}
}
