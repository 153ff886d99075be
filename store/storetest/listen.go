package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/dormouse-run/dormouse"
)

func testListening(t *testing.T, pair pairer) {
	t.Run("listen calls changed with sessions to which a server has appended soon after", pair(func(t *testing.T, a, b server) {
		a.join(t, long)
		b.join(t, long)
		one, two := create(t, a.Store, sessionID(1)), create(t, b.Store, sessionID(2))
		ears := []*ear{listen(t, a), listen(t, b)}
		for _, e := range ears {
			defer e.stop()
		}
		// What is appended before a listener is there it may miss, so append on.
		for _, w := range []*writer{one, two} {
			for _, e := range ears {
				eventually(t, "word of "+string(w.id), func() bool {
					w.add(t)
					return e.heard(w.id)
				})
			}
		}
	}))

	t.Run("listen returns the cause when ctx ends", pair(func(t *testing.T, a, _ server) {
		a.join(t, long)
		ctx, leave := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Listen(ctx, func([]dormouse.SessionID) {}) }()
		gone := errors.New("gone")
		leave(gone)
		wantErr(t, "listen", <-ended, gone)
	}))
}

// ear remembers what a listener was called with.
type ear struct {
	stop func()

	mu  sync.Mutex
	ids map[dormouse.SessionID]bool // guarded by mu
}

// listen listens until stop is called.
func listen(t *testing.T, s server) *ear {
	ctx, leave := context.WithCancelCause(t.Context())
	gone, ended := errors.New("gone"), make(chan error, 1)
	e := &ear{ids: make(map[dormouse.SessionID]bool), stop: func() {
		leave(gone)
		wantErr(t, "listen", <-ended, gone)
	}}
	go func() {
		ended <- s.Listen(ctx, func(ids []dormouse.SessionID) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for _, id := range ids {
				e.ids[id] = true
			}
		})
	}()
	return e
}

func (e *ear) heard(id dormouse.SessionID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ids[id]
}
