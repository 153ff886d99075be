//go:build linux

package gvisor

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// A command in a quiet sandbox wakes dozens of threads one after the other, and
// each of them waits for its turn if others keep the processors busy. So sandboxes
// are not equals: one that somebody waits for comes before those that only work
// on. Background processes are never waited for, nor is what takes long anyway.
//
// Who waits is known here as it happens. How much a sandbox has used would be
// known too late: a busy loop slows others down from its first instant.

// patience is how long a sandbox weighs as much as it can for one request, and
// after the last byte that was written to a stream.
const patience = 10 * time.Second

// linger is how long a sandbox still weighs more when nobody waits any more: who
// asked for one thing often asks for the next at once.
const linger = 100 * time.Millisecond

// attention has a sandbox weigh more while somebody waits for it. Nobody need
// remember what it weighed: who opens the sandbox next begins anew.
type attention struct {
	weigh func(weight) error
	log   *slog.Logger

	mu      sync.Mutex
	waiting int         // guarded by mu; how many wait, and not for long yet
	touched time.Time   // guarded by mu; when something was last written
	touch   *time.Timer // guarded by mu; not nil while that counts as waiting
	rest    *time.Timer // guarded by mu; not nil while nobody waits and that is not seen yet
	closed  bool        // guarded by mu; nothing is weighed any more
}

func newAttention(weigh func(weight) error, log *slog.Logger) *attention {
	return &attention{weigh: weigh, log: log}
}

// hold has the sandbox weigh more until release is called, however long that is.
func (a *attention) hold() (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(1)
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.add(-1)
	})
}

// Wait has the sandbox weigh more until done is called, but not for long.
func (a *attention) Wait() (done func()) {
	release := a.hold()
	late := time.AfterFunc(patience, release)
	return func() {
		late.Stop()
		release()
	}
}

// Touch has the sandbox weigh more for a while.
func (a *attention) Touch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.touched = time.Now()
	if a.touch == nil && !a.closed {
		a.add(1)
		a.touch = time.AfterFunc(patience, a.untouch)
	}
}

func (a *attention) untouch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.touch == nil {
		return
	}
	if left := patience - time.Since(a.touched); left > 0 {
		a.touch.Reset(left)
		return
	}
	a.touch = nil
	a.add(-1)
}

// add counts those who wait. It must be called with mu held.
func (a *attention) add(n int) {
	before := a.waiting
	a.waiting += n
	switch {
	case a.closed:
	case before == 0 && a.rest != nil:
		a.rest.Stop()
		a.rest = nil
	case before == 0:
		a.set(usual)
	case a.waiting == 0:
		a.rest = time.AfterFunc(linger, a.lieDown)
	}
}

// lieDown has the sandbox weigh little, unless somebody came meanwhile.
func (a *attention) lieDown() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == 0 && a.rest != nil && !a.closed {
		a.rest = nil
		a.set(resting)
	}
}

func (a *attention) set(w weight) {
	if err := a.weigh(w); err != nil {
		a.log.Warn("weight of a sandbox not changed", "error", err)
	}
}

// close leaves the sandbox at rest.
func (a *attention) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	if a.touch != nil {
		a.touch.Stop()
		a.touch = nil
	}
	if a.rest != nil {
		a.rest.Stop()
		a.rest = nil
	}
	a.set(resting)
}

// attend has a sandbox weigh more, open or not, while this server does something to
// it for which it needs processors of its own: it stands still meanwhile, or its
// session waits. It must be called with the session locked.
func (d *Driver) attend(b box) (release func()) {
	if a := d.crowd.of(b); a != nil {
		return a.hold()
	}
	a := newAttention(d.cgroupOf(b).weigh, d.log)
	a.hold()
	return a.close
}

// restAll has what servers before left weigh little until somebody opens it. If
// another server is here, it is told again of everyone who begins to wait.
func (d *Driver) restAll() error {
	all, err := d.strays()
	for _, b := range all {
		c := d.cgroupOf(b)
		err = errors.Join(err, c.weigh(resting))
		if moved := c.runOn(d.crowd.cpus.all); moved != nil && !ended(moved) {
			err = errors.Join(err, moved)
		}
	}
	return err
}
