//go:build linux

package cgroup

import (
	"log/slog"
	"sync"
	"time"
)

// A command in a quiet sandbox wakes dozens of threads one after the other, and each of
// them waits for its turn if others keep the CPUs busy. So a sandbox that a client waits
// for has more weight than those that only work on. Background processes are never waited
// for, nor is what takes long anyway.
//
// The server knows at once when a client begins to wait. CPU usage would be known too
// late: a busy loop slows others down from its first instant.

// patience is how long a sandbox has foreground weight for one request, and after the last
// byte that was written to a stream.
const patience = 10 * time.Second

// linger is how long a sandbox keeps foreground weight after the last client stops
// waiting: a request is often followed by the next at once.
const linger = 100 * time.Millisecond

// Priority gives a sandbox foreground weight while a client waits for it. Nothing of it is
// durable: the server that opens the sandbox next begins anew.
type Priority struct {
	setWeight func(Weight) error
	log       *slog.Logger

	mu      sync.Mutex
	waiting int         // guarded by mu; how many wait, and not for long yet
	touched time.Time   // guarded by mu; when something was last written
	touch   *time.Timer // guarded by mu; not nil while that counts as waiting
	lower   *time.Timer // guarded by mu; not nil while no client waits and the weight is still high
	closed  bool        // guarded by mu; the weight does not change any more
}

func newPriority(setWeight func(Weight) error, log *slog.Logger) *Priority {
	return &Priority{setWeight: setWeight, log: log}
}

// Hold gives the sandbox foreground weight until release is called, however long that is.
func (p *Priority) Hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(1)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.add(-1)
	})
}

// Wait gives the sandbox foreground weight until done is called, but not for long.
func (p *Priority) Wait() (done func()) {
	release := p.Hold()
	late := time.AfterFunc(patience, release)
	return func() {
		late.Stop()
		release()
	}
}

// Touch gives the sandbox foreground weight for a while.
func (p *Priority) Touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.touched = time.Now()
	if p.touch == nil && !p.closed {
		p.add(1)
		p.touch = time.AfterFunc(patience, p.untouch)
	}
}

func (p *Priority) untouch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.touch == nil {
		return
	}
	if left := patience - time.Since(p.touched); left > 0 {
		p.touch.Reset(left)
		return
	}
	p.touch = nil
	p.add(-1)
}

// add counts waiting clients. It must be called with mu held.
func (p *Priority) add(n int) {
	before := p.waiting
	p.waiting += n
	switch {
	case p.closed:
	case before == 0 && p.lower != nil:
		p.lower.Stop()
		p.lower = nil
	case before == 0:
		p.set(Foreground)
	case p.waiting == 0:
		p.lower = time.AfterFunc(linger, p.background)
	}
}

// background lowers the weight, unless a client began to wait meanwhile.
func (p *Priority) background() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == 0 && p.lower != nil && !p.closed {
		p.lower = nil
		p.set(Background)
	}
}

func (p *Priority) set(w Weight) {
	if err := p.setWeight(w); err != nil {
		p.log.Warn("weight of a sandbox not changed", "error", err)
	}
}

// close leaves the sandbox with background weight.
func (p *Priority) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	if p.touch != nil {
		p.touch.Stop()
		p.touch = nil
	}
	if p.lower != nil {
		p.lower.Stop()
		p.lower = nil
	}
	p.set(Background)
}
