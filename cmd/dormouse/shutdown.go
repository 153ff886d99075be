//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// grace is how long shutting down may take before it is cut short.
const grace = 30 * time.Second

// shutdown is a list. A second signal skips to the end: the steps before it stop
// waiting, and what they leave undone the next start takes up.
func (s *server) shutdown(ctx context.Context, signals <-chan os.Signal) error {
	ctx, skip := context.WithTimeoutCause(context.WithoutCancel(ctx), grace, errors.New("it took too long"))
	defer skip()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-signals:
			s.log.InfoContext(ctx, "stopping now")
			skip()
			signal.Reset(os.Interrupt, syscall.SIGTERM) // a third one kills
		case <-done:
		}
	}()
	var errs []error
	for _, step := range []struct {
		name string
		do   func() error
	}{
		// 1. No new traffic.
		{"stop being ready", func() error { s.ready.Store(false); return nil }},
		// 2. Followers: draining would wait for them.
		{"tell followers", func() error { s.sessions.EndFollowers(); return nil }},
		// 3. Requests in progress are answered.
		{"drain requests", func() error {
			ctx, cancel := context.WithTimeout(ctx, grace/3) // a client that trickles must not cost the actors their time
			defer cancel()
			_ = s.http.Shutdown(ctx) // requests that are not done by then are cut off
			return s.http.Close()
		}},
		// 4. Each actor ends its attempt and keeps its turn; then the lease is given up.
		{"stop actors", func() error {
			s.stop()
			err := errors.Join(s.sessions.Close(ctx), wait(ctx, &s.running))
			if s.peers != nil {
				s.peers.Close()
			}
			return err
		}},
		// 5. The actors have detached from the sandboxes, which live on.
		{"withdraw the address", s.withdraw},
		{"close the sandbox driver", s.closeDriver},
		{"close snapshots", s.closeSnapshots},
		{"close blobs", s.blobs.Close},
		{"leave the register", s.leaveRegister},
		{"close the disk reserve", s.held.Close},
		{"close database", s.store.Close}, // last: it gives the directory to the next server
	} {
		if err := step.do(); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
		}
	}
	return errors.Join(errs...)
}

// closeDriver closes what belongs to the driver and to no session.
func (s *server) closeDriver() error {
	if c, ok := s.driver.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// leaveRegister removes this server from the register of the servers of the directory.
func (s *server) leaveRegister() error {
	if s.fencing == nil {
		return nil
	}
	return s.fencing.Close()
}

// wait waits for a group, or until ctx ends.
func wait(ctx context.Context, g *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
