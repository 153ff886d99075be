package fleet

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
)

// A server that was paused for longer than its lease goes on before any timer has fired.
func TestWhoWasPausedDoesNothingBesideTheActors(t *testing.T) {
	l := newLease(t.Context(), Server{Incarnation: 1}, time.Hour, time.Now(), new(atomic.Uint64))
	l.alarm.Stop()
	l.begun = l.begun.Add(-2 * time.Hour)
	f := New(t.Context(), Config{})
	f.lease = l
	swept := false
	err := f.Under(t.Context(), func(context.Context) error { swept = true; return nil })
	if !errors.Is(err, dormouse.ErrLeaseLost) || swept {
		t.Errorf("swept %v, %v", swept, err)
	}
}

// What no actor does is part of the lease too: it is told to end, and a lease is not given
// up before it has.
func TestWhatGoesOnBesideTheActorsEndsWithTheLease(t *testing.T) {
	l := newLease(t.Context(), Server{Incarnation: 1}, time.Hour, time.Now(), new(atomic.Uint64))
	defer l.end()
	f := New(t.Context(), Config{})
	f.lease = l
	begun, gone := make(chan struct{}), make(chan struct{})
	release := make(chan struct{})
	go func() {
		defer close(gone)
		_ = f.Under(t.Context(), func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			<-release
			return nil
		})
	}()
	<-begun
	l.lose()
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if wait(short, &l.entered) == nil {
		t.Error("the lease was let go of while something went on under it")
	}
	close(release)
	<-gone
	if err := wait(t.Context(), &l.entered); err != nil {
		t.Error(err)
	}
}
