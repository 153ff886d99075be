//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/peer"
	v1 "github.com/dormouse-run/dormouse/door/v1"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/store"
)

// share completes the configuration of sessions for a store that other servers
// use too, and returns the key by which those know each other. For any other
// store there is nothing to do, and no key.
func (s *server) share(ctx context.Context, c *session.Config) (key []byte, err error) {
	shared, ok := s.store.(store.Shared)
	if !ok {
		c.Clock = crash.Now
		return nil, nil
	}
	if key, err = shared.Key(ctx); err != nil {
		return nil, err
	}
	s.peers = peer.NewClient(key, func() (time.Time, error) { return s.sessions.FleetNow() }, s.log)
	c.Peers, c.Lease = s.peers, s.config.Lease
	if c.Server, err = s.self(); err != nil {
		return key, err
	}
	if crash.Without("fencing") {
		return key, nil
	}
	// There is one register for each database, because the database's clock judges
	// leases. This much of the digest of its key is enough to tell two apart.
	const enough = 16
	store := string(dormouse.DigestOf(append([]byte("fencing "), key...)))[len("sha256:"):][:enough]
	s.fencing, err = fencing.Open(filepath.Join(s.config.Data, serversDir), store)
	c.Fencing = s.fencing
	return key, err
}

// serversDir has the register of the servers that share a data directory.
const serversDir = "servers"

// self is this server as others know it.
func (s *server) self() (fleet.Server, error) {
	host, err := os.Hostname()
	if err != nil {
		return fleet.Server{}, err
	}
	instance, err := instanceOf(s.config.Data)
	if err != nil {
		return fleet.Server{}, err
	}
	addr := s.listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	self := fleet.Server{
		Name: s.config.ServerName, Addr: s.config.Advertise,
		Place: instance + "@" + host, // sandboxes are processes of this machine
	}
	if self.Name == "" {
		self.Name = net.JoinHostPort(host, port)
	}
	if self.Addr == "" {
		self.Addr = addr
	}
	return self, nil
}

// unwelcome explains why the other servers refused this one.
func unwelcome(err error) error {
	if errors.Is(err, dormouse.ErrConflict) {
		return fmt.Errorf("%w; servers that share a database share the machine and the directory of their sandboxes: see --data", err)
	}
	return err
}

// inside is the handler of all doors: that of other servers, if the store is shared, and
// those of clients.
func (s *server) inside(key []byte) http.Handler {
	var peers http.Handler
	if s.peers != nil {
		peers = peer.New(peer.Config{Sessions: s.sessions, Key: key, Logger: s.log})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, v1.Prefix):
			s.v1.ServeHTTP(w, r)
		case peers != nil && strings.HasPrefix(r.URL.Path, peer.Prefix):
			peers.ServeHTTP(w, r)
		default:
			s.door.ServeHTTP(w, r)
		}
	})
}

// leased reports whether this server may write sessions now.
func (s *server) leased() error {
	if _, ok := s.sessions.Self(); !ok && s.peers != nil {
		return dormouse.ErrLeaseLost
	}
	return nil
}

// findSelf sends this server a request at the address that it advertises to others.
// Otherwise a wrong address would show only when they need it.
func (s *server) findSelf(ctx context.Context) {
	me, ok := s.sessions.Self()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.peers.Who(ctx, fleet.Route{From: me, To: me})
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "other servers may not reach this one; see --advertise", "address", me.Addr, "error", err)
	}
}
