package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// releaseWithin is how long a server may take to release what it had when its lease has
// run out. One that is stopped by a signal is not waited for.
const releaseWithin = 3 * time.Second

// checkEvery is the longest interval between two checks for servers that still hold locks
// or sockets after their lease.
const checkEvery = 2 * time.Second

// fences is what a server knows of others that hold on: that still hold locks or sockets
// after their lease.
type fences struct {
	evicting chan struct{} // a semaphore of one: held while servers are ended

	mu       sync.Mutex
	seen     map[uint64]time.Time // guarded by mu; since when an incarnation is known to hold on
	unending map[uint64]bool      // guarded by mu; those that cannot be ended, which was logged
}

func newFences() *fences {
	return &fences{evicting: make(chan struct{}, 1), seen: make(map[uint64]time.Time), unending: make(map[uint64]bool)}
}

// Fence returns once no server works on without a lease: each has released all it held, or
// was ended. What is claimed after a lease ran out is left alone until then, because a
// call that was begun under that lease may be carried out at any time.
//
// Some cannot be ended. Sessions do not wait for those: their epochs are refused, and
// locks keep out what they were about to do.
func (f *Fleet) Fence(ctx context.Context) error {
	if f.config.Fencing == nil {
		return nil
	}
	if held, err := f.holders(ctx); err != nil || len(held) == 0 {
		return err
	}
	select {
	case f.fences.evicting <- struct{}{}:
		defer func() { <-f.fences.evicting }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		held, err := f.holders(ctx)
		if err != nil || len(held) == 0 {
			return err
		}
		for _, h := range held {
			if h.Stopped() || f.fences.since(h.Incarnation) > releaseWithin {
				if err := f.evict(ctx, h); err != nil {
					return err
				}
			}
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// holders lists the servers whose lease is over and that have not released what they held,
// except those that cannot be ended.
func (f *Fleet) holders(ctx context.Context) ([]fencing.Holder, error) {
	held, err := f.config.Fencing.Others()
	if err != nil {
		f.config.Logger.WarnContext(ctx, "servers that work on after their lease not listed", "error", err)
		return nil, nil // their epochs are refused
	}
	if len(held) == 0 {
		f.fences.update(nil)
		return nil, nil
	}
	live, err := f.config.Shared.Servers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look who lives: %w", err)
	}
	held = slices.DeleteFunc(held, func(h fencing.Holder) bool {
		return slices.ContainsFunc(live, func(l Server) bool { return l.Incarnation == h.Incarnation })
	})
	return f.fences.update(held), nil
}

// update keeps only these, and returns those of them that may be ended.
func (f *fences) update(held []fencing.Holder) (open []fencing.Holder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := make(map[uint64]bool, len(held))
	for _, h := range held {
		is[h.Incarnation] = true
		if _, ok := f.seen[h.Incarnation]; !ok {
			f.seen[h.Incarnation] = time.Now()
		}
		if !f.unending[h.Incarnation] {
			open = append(open, h)
		}
	}
	for n := range f.seen {
		if !is[n] {
			delete(f.seen, n)
			delete(f.unending, n)
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

// evict ends a server that holds on after its lease.
func (f *Fleet) evict(ctx context.Context, h fencing.Holder) error {
	var failed error
	ended, err := f.config.Fencing.End(ctx, h, func(ctx context.Context) (done bool, err error) {
		done, failed = f.config.Shared.Ban(ctx, h.Incarnation)
		return done, failed
	})
	switch {
	case failed != nil:
		return fmt.Errorf("ban incarnation %d: %w", h.Incarnation, failed)
	case err != nil:
		f.config.Logger.ErrorContext(ctx, "a server holds on after its lease and cannot be ended; end it", "incarnation", h.Incarnation, "pid", h.PID, "error", err)
		f.fences.mu.Lock()
		f.fences.unending[h.Incarnation] = true
		f.fences.mu.Unlock()
		return nil
	case !ended:
		return nil // it has released everything, or has a lease
	}
	f.counts.ended.Add(1)
	f.config.Logger.ErrorContext(ctx, "a server held on after its lease and was ended", "incarnation", h.Incarnation, "pid", h.PID)
	if err := f.config.Shared.Unban(ctx, h.Incarnation); err != nil {
		f.config.Logger.WarnContext(ctx, "ban of an ended server not removed", "incarnation", h.Incarnation, "error", err)
	}
	return nil
}

// fenceAlways ends servers that hold on after their lease, even if no session waits for
// what they hold: some locks belong to no session.
func (f *Fleet) fenceAlways() {
	for {
		if sleep.For(f.life, min(f.config.TTL/6, checkEvery)) != nil {
			return
		}
		if _, ok := f.Self(); !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(f.life, 2*releaseWithin)
		if err := f.Fence(ctx); err != nil && f.life.Err() == nil {
			f.config.Logger.DebugContext(ctx, "servers that work on after their lease not ended", "error", err)
		}
		cancel()
	}
}

// sign says which incarnation this server works under; 0 that nothing goes on.
func (f *Fleet) sign(incarnation uint64) error {
	if f.config.Fencing == nil {
		return nil
	}
	return f.config.Fencing.Sign(incarnation)
}
