package actor

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/visit"
)

// maxVisits bounds the visits of one session.
const maxVisits = 64

// visitor is a request to enter the sandbox, which waits for it.
type visitor struct {
	visit.Errand
	reply chan visitReply // holds one
}

type visitReply struct {
	visit *visit.Visit
	err   error
}

// Visit waits for the sandbox and lets a visitor in. It is called by the visitor.
func (a *Actor) Visit(ctx context.Context, e visit.Errand) (*visit.Visit, error) {
	c := &visitor{Errand: e, reply: make(chan visitReply, 1)}
	if err := a.send(ctx, message{act: func(context.Context) error { return a.admit(c) }}); err != nil {
		return nil, err
	}
	var err error
	select {
	case r := <-c.reply:
		return r.visit, r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-a.quit:
		err = ErrDropped
	}
	a.report(func(context.Context) error {
		a.visitors = slices.DeleteFunc(a.visitors, func(other *visitor) bool { return other == c })
		return nil
	})
	select {
	case r := <-c.reply:
		if r.visit != nil {
			r.visit.Close()
		}
	default:
	}
	return nil, err
}

// admit takes a visitor's action. What is asked on a visit that another server
// received is part of that visit.
func (a *Actor) admit(c *visitor) error {
	part := c.Generation != 0 && c.Stream == nil
	if n := len(a.visitors) + int(a.visits.Load()); n >= maxVisits && !part {
		return fmt.Errorf("%d visitors are in this sandbox, and no more can be: %w", n, dormouse.ErrConflict)
	}
	if err := a.refusal(c); err != nil {
		return err
	}
	a.visitors = append(a.visitors, c)
	return nil
}

// refusal says why a visitor has nothing to wait for.
func (a *Actor) refusal(c *visitor) error {
	s := a.state.Sandbox
	switch {
	case a.state.Terminated != nil:
		return dormouse.ErrTerminated
	case c.Generation != 0 && (s.Phase != law.SandboxActive || s.Generation != c.Generation):
		return a.sandboxGone()
	case c.Wake || s.Phase == law.SandboxActive || s.Phase == law.SandboxWarming:
		return nil
	case s.Phase == law.SandboxStopping:
		return a.sandboxGone()
	}
	return fmt.Errorf("session is %s and has no sandbox now; wake it first: %w", law.PhaseOf(a.state), dormouse.ErrConflict)
}

// sandboxGone says what became of the sandbox that visitors were in.
func (a *Actor) sandboxGone() error {
	if a.state.Sandbox.Phase == law.SandboxStopping {
		return fmt.Errorf("the sandbox is being stopped: %w", dormouse.ErrConflict)
	}
	return fmt.Errorf("the sandbox that was visited is gone: %w", dormouse.ErrConflict)
}

// visitEnded notes that a visitor has left the sandbox.
func (a *Actor) visitEnded() {
	a.lastLeft.Store(a.deps.Clock().UnixNano())
	a.visits.Add(-1)
}

// refuseVisitors refuses the visitors that have nothing to wait for.
func (a *Actor) refuseVisitors() {
	a.visitors = slices.DeleteFunc(a.visitors, func(c *visitor) bool {
		err := a.refusal(c)
		if err != nil {
			c.reply <- visitReply{err: err}
		}
		return err != nil
	})
}

// serveVisitors lets visitors into the sandbox that is held.
func (a *Actor) serveVisitors() {
	for _, c := range a.visitors {
		m, ok := a.sandbox.live.(sandbox.Machine)
		if !ok {
			c.reply <- visitReply{err: fmt.Errorf("sandboxes of this kind cannot be visited: %w", dormouse.ErrConflict)}
			continue
		}
		a.visits.Add(1)
		c.reply <- visitReply{visit: visit.NewLocal(a.sandbox.ctx, m, a.sandbox.generation, a.touch, a.visitEnded)}
	}
	a.visitors = nil
}

// touch records that files may change. The visitor's goroutine calls it.
func (a *Actor) touch(ctx context.Context, t dormouse.WorkspaceTouch) (done func(), err error) {
	a.streamsEver.Add(1) // first, so that a snapshot that is taken meanwhile knows of it
	a.streams.Add(1)
	done = func() { a.streams.Add(-1) }
	err = a.send(ctx, message{act: func(ctx context.Context) error {
		switch w := a.state.Workspace; {
		case w.Policy == "":
			return nil // no snapshots are taken
		case w.Touched > 0 && (a.snapshot.id == "" || w.Touched > a.snapshot.at):
			return nil // it is recorded, and no snapshot that is being taken will clear it
		}
		crash.At(crash.TouchDeciding)
		err := a.do(ctx, law.Touch{WorkspaceTouch: t})
		crash.At(crash.TouchCommitted)
		return err
	}})
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// failVisitors tells visitors that the sandbox they wait for could not be had.
func (a *Actor) failVisitors(cause error) {
	for _, c := range a.visitors {
		c.reply <- visitReply{err: fmt.Errorf("%w: %w", cause, dormouse.ErrConflict)}
	}
	a.visitors = nil
}
