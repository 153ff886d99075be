package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/store"
)

// Take makes this server the owner of sessions that are due and have no live owner, at
// most limit and none of except. If it fails, some may be ours all the same: see Strays.
func (f *Fleet) Take(ctx context.Context, now time.Time, limit int, except ...dormouse.SessionID) ([]dormouse.SessionID, error) {
	ids, err := f.config.Shared.Take(ctx, now, limit, except...)
	if err != nil {
		f.inDoubt = true
		return nil, fmt.Errorf("take due sessions: %w", err)
	}
	if len(ids) > 0 {
		crash.At(crash.LeaseTaking)
		f.counts.taken.Add(uint64(len(ids)))
	}
	return ids, nil
}

// InDoubt reports whether a Take may have taken more than it returned. It is for the
// goroutine that calls Take.
func (f *Fleet) InDoubt() bool { return f.inDoubt }

// AddStrays makes a pending claim of each of the sessions that is ours according to the
// database: a Take whose answer was lost has taken it.
func (f *Fleet) AddStrays(ctx context.Context, ids []dormouse.SessionID) error {
	me, ok := f.Self()
	if !ok {
		return nil
	}
	places, err := f.config.Shared.Where(ctx, ids...)
	if err != nil {
		return err
	}
	f.inDoubt = false
	for _, p := range places {
		if p.Owner != nil && p.Owner.Incarnation == me.Incarnation {
			f.AddPending(p.Session)
		}
	}
	return nil
}

// Release gives up a session whose actor has ended, for the reason that it had. If it is
// not certain that this worked, the claim is pending: the session is loaded again, so
// that it does not stay with a server that does nothing for it.
func (f *Fleet) Release(l *Lease, id dormouse.SessionID, epoch store.Epoch, cause error) {
	if epoch == 0 {
		if !errors.Is(cause, dormouse.ErrNotFound) {
			f.AddPending(id) // a claim that failed may have worked
		}
		return
	}
	ctx, cancel := context.WithTimeout(l.writes, f.config.TTL)
	defer cancel()
	crash.At(crash.LeaseReleasing)
	if err := f.config.Shared.Release(ctx, id, epoch); err != nil {
		f.config.Logger.WarnContext(ctx, "session not released", "session", id, "error", err)
		f.AddPending(id)
	}
}

// AddPending records a session that this server may own without having loaded it.
func (f *Fleet) AddPending(id dormouse.SessionID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending[id] = true
}

// TakePending returns the sessions that may be ours and are not loaded, and forgets them.
func (f *Fleet) TakePending() []dormouse.SessionID {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := slices.Collect(maps.Keys(f.pending))
	clear(f.pending)
	return ids
}
