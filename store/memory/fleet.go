package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Server is a Store as one of several servers sees it.
type Server struct{ Store }

var (
	_ store.Store  = (*Server)(nil)
	_ store.Shared = (*Server)(nil)
)

// Server gives one more server a view of the store. Closing a view leaves the
// others open.
func (s *Store) Server() *Server {
	s.ready()
	return &Server{Store{base: s.base}}
}

// lease is a server and how long it lives unless it renews.
type lease struct {
	store.Server
	length time.Duration
	until  time.Time
	doomed bool // it may not join again
}

// Join takes a lease for a server and ends the one this view had.
func (s *Server) Join(ctx context.Context, server store.Server, length time.Duration) (store.Server, error) {
	err := s.write(ctx, "join", "", func(*session) error {
		for _, other := range s.base.live() {
			if other.Incarnation != s.me && other.Place != server.Place {
				return dormouse.ErrConflict
			}
		}
		if l, ok := s.base.servers[s.me]; ok && l.doomed {
			return store.ErrBanned
		}
		delete(s.base.servers, s.me)
		s.base.joined++
		s.me, server.Incarnation = s.base.joined, s.base.joined
		s.base.servers[s.me] = &lease{Server: server, length: length, until: time.Now().Add(length)}
		return nil
	})
	return server, err
}

// Renew extends the lease.
func (s *Server) Renew(ctx context.Context) error {
	return s.write(ctx, "renew lease", "", func(*session) error {
		if !s.base.lives(s.me) {
			return dormouse.ErrLeaseLost
		}
		l := s.base.servers[s.me]
		l.until = time.Now().Add(l.length)
		return nil
	})
}

// Leave ends the lease and with it what the server owned.
func (s *Server) Leave(ctx context.Context) error {
	return s.write(ctx, "leave", "", func(*session) error {
		delete(s.base.servers, s.me)
		return nil
	})
}

// Servers lists the servers that live.
func (s *Server) Servers(ctx context.Context) (servers []store.Server, err error) {
	err = s.read(ctx, "list servers", "", func(*session) error {
		servers = s.base.live()
		return nil
	})
	return servers, err
}

// Ban keeps a server from joining again whose lease has run out.
func (s *Server) Ban(ctx context.Context, incarnation uint64) (done bool, err error) {
	err = s.write(ctx, "ban", "", func(*session) error {
		if done = !s.base.lives(incarnation); done {
			s.base.servers[incarnation] = &lease{Server: store.Server{Incarnation: incarnation}, doomed: true}
		}
		return nil
	})
	return done, err
}

// Unban forgets a server that was banned.
func (s *Server) Unban(ctx context.Context, incarnation uint64) error {
	return s.write(ctx, "unban", "", func(*session) error {
		if l, ok := s.base.servers[incarnation]; ok && l.doomed {
			delete(s.base.servers, incarnation)
		}
		return nil
	})
}

// Key returns the secret of the store.
func (s *Server) Key(ctx context.Context) (key []byte, err error) {
	err = s.read(ctx, "read key", "", func(*session) error {
		key = slices.Clone(s.base.key[:])
		return nil
	})
	return key, err
}

// Now is the time. It goes on from when the store was made, whatever the
// machine's clock is set to.
func (s *Server) Now() time.Time {
	s.ready()
	return s.base.born.Add(time.Since(s.base.born))
}

// lives reports whether an incarnation has a lease that has not run out.
func (b *base) lives(incarnation uint64) bool {
	l, ok := b.servers[incarnation]
	return ok && time.Now().Before(l.until)
}

// live lists the servers that live, the first to join first.
func (b *base) live() (servers []store.Server) {
	for l := range maps.Values(b.servers) {
		if b.lives(l.Incarnation) {
			servers = append(servers, l.Server)
		}
	}
	slices.SortFunc(servers, func(x, y store.Server) int { return cmp.Compare(x.Incarnation, y.Incarnation) })
	return servers
}
