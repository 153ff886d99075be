package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/store"
)

func (f *Fleet) join(ctx context.Context) (*Lease, error) {
	begun := time.Now()
	server, err := f.config.Shared.Join(ctx, f.config.Server, f.config.TTL)
	if err != nil {
		return nil, fmt.Errorf("join the servers of this store: %w", err)
	}
	// Nothing is begun under it before other servers can tell which process does it.
	if err := f.sign(server.Incarnation); err != nil {
		return nil, fmt.Errorf("join the servers of this store: %w", err)
	}
	l := newLease(f.life, server, f.config.TTL-f.config.TTL/4, begun, &f.counts.stale)
	f.config.Logger.InfoContext(ctx, "lease taken", "server", server.Name, "incarnation", server.Incarnation)
	crash.At(crash.LeaseJoined)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lease = l
	close(f.joined)
	f.joined = make(chan struct{})
	return l, nil
}

// keep renews the lease until StopRenewing, and takes a new one whenever it is lost.
func (f *Fleet) keep(l *Lease) {
	for l != nil {
		f.renew(l)
		if f.kept.Err() != nil {
			l.end()
			return
		}
		f.counts.lost.Add(1)
		f.config.Logger.ErrorContext(f.kept, "lease lost", "incarnation", l.server.Incarnation, "actors", f.config.Loaded())
		f.dropLease(l)
		if f.life.Err() != nil {
			return // the server stops; nothing is left to have a lease for
		}
		l = f.rejoin(l.server)
	}
}

// renew renews a lease until it is lost or StopRenewing was called.
func (f *Fleet) renew(l *Lease) {
	for wait := f.config.TTL/3 - time.Since(l.begun); ; {
		select {
		case <-f.kept.Done():
			return
		case <-l.writes.Done():
			return
		case <-time.After(wait):
		}
		crash.At(crash.LeaseRenewing)
		sent := time.Now()
		ctx, cancel := context.WithTimeout(l.writes, f.config.TTL/4) // short of what is left, to try once more
		err := f.config.Shared.Renew(ctx)
		cancel()
		switch {
		case err == nil:
			l.extend(sent)
			wait = f.config.TTL/3 - time.Since(sent)
		case l.writes.Err() != nil:
			return
		case errors.Is(err, dormouse.ErrLeaseLost):
			l.lose()
			return
		default:
			f.config.Logger.WarnContext(ctx, "lease not renewed", "error", err)
			wait = f.config.TTL / 12
		}
	}
}

// dropLease waits until all work under a lost lease has ended, and then tells the other
// servers. It waits for a bounded time: if no other server is there to end this one, the
// work cannot do harm, because its epoch will be an old one.
func (f *Fleet) dropLease(l *Lease) {
	f.mu.Lock()
	f.lease = nil
	clear(f.pending) // claims go with the lease
	f.mu.Unlock()
	l.lose()
	ctx, cancel := context.WithTimeout(f.kept, f.dropWithin())
	defer cancel()
	if err := wait(ctx, &l.entered); err != nil {
		f.config.Logger.ErrorContext(ctx, "actors outlive their lease", "error", err)
	}
	if err := f.sign(0); err != nil {
		f.config.Logger.ErrorContext(ctx, "end of all work under the lost lease not announced to other servers", "error", err)
	}
}

// dropWithin is how long a server waits for its actors when it has lost its lease. By
// then another server, if there is one, has ended it.
func (f *Fleet) dropWithin() time.Duration {
	if f.config.Fencing == nil {
		return f.config.TTL
	}
	return f.config.TTL + 2*releaseWithin
}

// rejoin takes the next lease as soon as it can have one. It returns nil if the server
// stops first, or can get none any more.
func (f *Fleet) rejoin(before Server) *Lease {
	for {
		ctx, cancel := context.WithTimeout(f.kept, f.config.TTL/2) // a lease that came later would be nearly over
		l, err := f.join(ctx)
		cancel()
		if err == nil {
			f.config.OnRejoin()
			return l
		}
		f.config.Logger.WarnContext(f.kept, "lease not taken", "error", err)
		if errors.Is(err, store.ErrBanned) {
			f.evicted(before, err)
			return nil
		}
		if errors.Is(err, store.ErrNewer) { // this program can never use the database again
			f.failed <- err
			return nil
		}
		if sleep.For(f.life, f.config.TTL/6) != nil {
			return nil
		}
	}
}

// evicted stops this server, which another one banned while it was paused. It will not
// join any more, so that the record of the ban can be removed.
func (f *Fleet) evicted(before Server, err error) {
	f.failed <- err
	ctx, cancel := context.WithTimeout(f.kept, f.config.TTL)
	defer cancel()
	if err := f.config.Shared.Unban(ctx, before.Incarnation); err != nil {
		f.config.Logger.WarnContext(ctx, "ban of this server not removed", "incarnation", before.Incarnation, "error", err)
	}
}
