package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Fleet is several servers of one store and one data directory, each kept alive by its own
// keeper. Clients use any of them.
type Fleet struct {
	Keepers []*Keeper
	next    atomic.Uint64
	steered atomic.Pointer[Keeper]

	mu     sync.Mutex
	blamed map[*Life]time.Time // guarded by mu; until when it is not asked
}

// NewFleet prepares n servers like s, which do not run yet. Each has a log file of its own.
func NewFleet(ctx context.Context, s Server, n int, arms []Arm) *Fleet {
	f := new(Fleet)
	for i := range n {
		one := s
		if s.Store.Shared() {
			one.Flags = append([]string{"--server-name", name(i)}, s.Flags...)
		}
		if i > 0 {
			one.Log += fmt.Sprintf(".%d", i)
			arms = nil // the first is the one that dies
		}
		f.Keepers = append(f.Keepers, Keep(ctx, &one, arms))
	}
	return f
}

// name is what the i-th server of a fleet is called.
func name(i int) string { return fmt.Sprintf("server-%d", i) }

// Named finds a server by its name, or returns nil.
func (f *Fleet) Named(called string) *Keeper {
	for i, k := range f.Keepers {
		if name(i) == called {
			return k
		}
	}
	return nil
}

// Run begins the first life of each server. The first server gets a second to start before
// the others, so that clients steered to it find it. If all clients are steered to it, it
// gets as long as a start may take on a busy machine: a session that another server created
// would be a different case.
func (f *Fleet) Run() {
	within := time.Second
	if f.steered.Load() == f.Keepers[0] {
		within = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(f.Keepers[0].ctx, within)
	defer cancel()
	for i, k := range f.Keepers {
		if i == 1 {
			_, _ = f.Keepers[0].Live(ctx) // it may have been told to die on the way
		}
		k.Run()
	}
}

// Close ends them all.
func (f *Fleet) Close() {
	for _, k := range f.Keepers {
		k.Close()
	}
}

// Token is the access token of all of them.
func (f *Fleet) Token() string { return f.Keepers[0].Token() }

// Steer sends clients to one server as long as that answers; with nil they use any.
func (f *Fleet) Steer(k *Keeper) { f.steered.Store(k) }

// Live returns a running server, another one each time, and waits while there is none. The
// server may listen and still not answer.
func (f *Fleet) Live(ctx context.Context) (*Life, error) {
	for {
		if k := f.steered.Load(); k != nil {
			if l, err := k.living(); err != nil || l != nil && !f.ill(l) {
				return l, err
			}
		}
		var spare *Life
		first := f.next.Add(1)
		for i := range f.Keepers {
			k := f.Keepers[(int(first)+i)%len(f.Keepers)]
			l, err := k.living()
			if err != nil || l != nil && !f.ill(l) {
				return l, err
			}
			if l != nil {
				spare = l
			}
		}
		if spare != nil {
			return spare, nil
		}
		if err := sleep.For(ctx, 5*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// Blame checks the health of a server that left a client without an answer, as a load
// balancer does. If the server is not healthy, it gets no requests for a moment, unless
// there is no other.
func (f *Fleet) Blame(l *Life) {
	const moment = time.Second
	if l.well() {
		f.setBlame(l, time.Time{})
	} else {
		f.setBlame(l, time.Now().Add(moment))
	}
}

func (f *Fleet) setBlame(l *Life, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until.IsZero() {
		delete(f.blamed, l)
		return
	}
	if f.blamed == nil {
		f.blamed = make(map[*Life]time.Time)
	}
	f.blamed[l] = until
}

// ill reports whether a life gets no requests at the moment.
func (f *Fleet) ill(l *Life) bool {
	f.mu.Lock()
	until, blamed := f.blamed[l]
	f.mu.Unlock()
	if blamed && time.Now().After(until) {
		f.Blame(l) // it may be well by now
		f.mu.Lock()
		_, blamed = f.blamed[l]
		f.mu.Unlock()
	}
	return blamed
}

// At is the fleet for a client that asks k as long as k answers at all.
func (f *Fleet) At(k *Keeper) *Fleet {
	g := &Fleet{Keepers: f.Keepers}
	g.Steer(k)
	return g
}

// Halt stops all servers as an operator would, and holds back their next lives.
func (f *Fleet) Halt(ctx context.Context) error {
	var errs []error
	for _, k := range f.Keepers {
		errs = append(errs, k.Halt(ctx))
	}
	return errors.Join(errs...)
}

// Resume lets the next lives begin.
func (f *Fleet) Resume() {
	for _, k := range f.Keepers {
		k.Resume()
	}
}

// Crashes lists lives that ended by themselves, and how.
func (f *Fleet) Crashes() []string {
	var all []string
	for _, k := range f.Keepers {
		all = append(all, k.Crashes()...)
	}
	return all
}
