package visit

import (
	"context"
	"sync"

	"github.com/dormouse-run/dormouse"
)

// Register is the visits that go on through this server.
type Register struct {
	ctx context.Context //nolint:containedctx // the life of visits, which Drain ends
	end context.CancelCauseFunc

	mu       sync.Mutex
	draining bool // guarded by mu
	open     sync.WaitGroup
}

// NewRegister returns a register without visits.
func NewRegister(life context.Context) *Register {
	r := new(Register)
	r.ctx, r.end = context.WithCancelCause(life)
	return r
}

// Admit counts a visit for Wait, and ends it with the server. Once the server drains the
// visit is refused and closed.
func (r *Register) Admit(v *Visit) (*Visit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		v.Close()
		return nil, dormouse.ErrClosing
	}
	r.open.Add(1)
	stop, leave := context.AfterFunc(r.ctx, func() { v.end(dormouse.ErrClosing) }), v.leave
	v.leave = func() {
		stop()
		leave()
		r.open.Done()
	}
	return v, nil
}

// NewRemote returns a visit of a sandbox that another server holds.
func (r *Register) NewRemote(target Target, generation uint64) (*Visit, error) {
	return r.Admit(newVisit(r.ctx, target, generation, func() {}))
}

// Drain refuses new visits and tells all visitors that the server goes away.
func (r *Register) Drain() {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	r.end(dormouse.ErrClosing)
}

// Wait returns when all visits were closed, or when ctx ends.
func (r *Register) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { r.open.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
