package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Keeper keeps a server alive: when a life ends, the next one of its list
// begins, and after the last an ordinary one.
type Keeper struct {
	*Server
	// Hits, if not nil, names the file for the points that life n visits.
	Hits func(n int) string
	// Between, if not nil, runs between two lives.
	Between func(n int)
	// Stubborn starts a server again that did not start, as a supervisor does.
	Stubborn bool

	ctx    context.Context //nolint:containedctx // the keeper's own life
	cancel context.CancelFunc
	ended  chan struct{}
	parked atomic.Bool // no life is there, and none will be until resumed

	mu      sync.Mutex
	arms    []Arm         // guarded by mu; of lives to come
	now     *Life         // guarded by mu
	lives   int           // guarded by mu
	began   []time.Time   // guarded by mu; each of them
	deaths  []Arm         // guarded by mu; those that ended a life
	crashes []string      // guarded by mu; how lives ended that the test did not end
	frozen  *Life         // guarded by mu; the last one that was told to freeze
	err     error         // guarded by mu; why there is no next life
	changed chan struct{} // guarded by mu; closed when one of the above changes
	hold    bool          // guarded by mu; no new life until resumed
}

// Keep starts keeping s alive.
func Keep(ctx context.Context, s *Server, arms []Arm) *Keeper {
	k := &Keeper{Server: s, arms: arms, changed: make(chan struct{}), ended: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(ctx)
	return k
}

// Run begins the first life; it returns at once.
func (k *Keeper) Run() { go k.run() }

func (k *Keeper) run() {
	defer close(k.ended)
	for n := 0; k.ctx.Err() == nil; n++ {
		if !k.mayStart() {
			return
		}
		k.mu.Lock()
		var arm Arm
		if len(k.arms) > 0 {
			arm, k.arms = k.arms[0], k.arms[1:]
		}
		k.mu.Unlock()
		hits := ""
		if k.Hits != nil {
			hits = k.Hits(n)
		}
		began := time.Now()
		l, err := k.Start(k.ctx, arm, hits)
		if err != nil && k.Stubborn && sleep.For(k.ctx, 100*time.Millisecond) == nil {
			continue
		}
		k.set(func() {
			k.now, k.lives, k.err, k.began = l, k.lives+1, err, append(k.began, began)
			if l != nil && arm.Death == crash.Freeze {
				k.frozen = l
			}
		})
		if err != nil {
			return
		}
		select {
		case <-l.done:
		case <-k.ctx.Done():
			<-l.done
		}
		k.set(func() { k.end(l) })
		if k.Between != nil && k.ctx.Err() == nil {
			k.Between(n)
		}
	}
}

// end notes how a life ended. One that was not killed, stopped or armed has crashed.
func (k *Keeper) end(l *Life) {
	k.now = nil
	switch {
	case l.diedAsArmed():
		k.deaths = append(k.deaths, l.Arm)
	case l.Killed() || l.meant.Load() || k.ctx.Err() != nil:
	default:
		k.crashes = append(k.crashes, fmt.Sprintf("a server ended by itself: %v: %s", l.err, k.Tail()))
	}
}

// Crashes lists lives that ended by themselves, and how.
func (k *Keeper) Crashes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.crashes...)
}

// mayStart waits while lives are held back.
func (k *Keeper) mayStart() bool {
	for {
		k.mu.Lock()
		hold, changed := k.hold, k.changed
		k.mu.Unlock()
		if !hold {
			return true
		}
		k.parked.Store(true)
		select {
		case <-changed:
			k.parked.Store(false)
		case <-k.ctx.Done():
			return false
		}
	}
}

func (k *Keeper) set(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.changed)
	k.changed = make(chan struct{})
}

// Live returns the life that listens now, waiting for one if need be.
func (k *Keeper) Live(ctx context.Context) (*Life, error) {
	for {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		if l, err := k.living(); l != nil || err != nil {
			return l, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-k.ended:
			return nil, errors.New("the server is no longer kept alive")
		case <-time.After(5 * time.Millisecond): // a life that is going
		}
	}
}

// Now returns the life that listens now, nil if there is none.
func (k *Keeper) Now() *Life {
	l, _ := k.living() // why there is none is for Live to say
	return l
}

// Blame does nothing: there is no other server.
func (k *Keeper) Blame(*Life) {}

// living returns the life that listens now, or nil if none does yet.
func (k *Keeper) living() (*Life, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now == nil || k.now.addr == "" || k.now.Gone() {
		return nil, k.err
	}
	return k.now, k.err
}

// Disarm makes every life from now on an ordinary one. A life that did not die
// where it was armed is stopped.
func (k *Keeper) Disarm() {
	k.mu.Lock()
	k.arms = nil
	l := k.now
	k.mu.Unlock()
	if l != nil && l.Arm.Point != "" && !l.spent.Load() && !l.Gone() {
		l.Kill()
	}
}

// Died lists the arms that have ended or frozen a life so far.
func (k *Keeper) Died() []Arm {
	k.mu.Lock()
	defer k.mu.Unlock()
	died := append([]Arm(nil), k.deaths...)
	if k.now != nil && k.now.diedAsArmed() {
		died = append(died, k.now.Arm)
	}
	return died
}

// Froze says when the last life that was armed to freeze did.
func (k *Keeper) Froze() (at time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.frozen == nil || k.frozen.froze.Load() == nil {
		return time.Time{}, false
	}
	return *k.frozen.froze.Load(), true
}

// Began says when each process so far was started.
func (k *Keeper) Began() []time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.began)
}

// Lives counts the processes so far.
func (k *Keeper) Lives() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lives
}

// Hold holds back the next life.
func (k *Keeper) Hold() { k.set(func() { k.hold = true }) }

// Halt stops the server as an operator would and holds back the next life. If
// the server was gone already there is nothing to stop.
func (k *Keeper) Halt(ctx context.Context) error {
	k.Hold()
	for {
		k.mu.Lock()
		l, err := k.now, k.err
		k.mu.Unlock()
		if err != nil || k.parked.Load() {
			return err
		}
		if l != nil { // if not, the next life is already on its way
			if err := l.Stop(); err != nil && !l.Killed() {
				return err
			}
		}
		if err := sleep.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// Resume lets the next life begin.
func (k *Keeper) Resume() { k.set(func() { k.hold = false }) }

// Close ends the server, however it is, and waits for it.
func (k *Keeper) Close() {
	k.cancel()
	k.mu.Lock()
	l := k.now
	k.mu.Unlock()
	if l != nil {
		l.Kill()
	}
	<-k.ended
}
