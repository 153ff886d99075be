package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
)

// maxVisits bounds the visits of one session.
const maxVisits = 64

// Reach visits the sandbox of a session, on whichever server it is held. With
// wake one is started if there is none; without, that is a conflict. While a
// visit lasts its session stays loaded; that it lasts keeps no sandbox awake.
func (s *Sessions) Reach(ctx context.Context, id dormouse.SessionID, wake bool) (*Visit, error) {
	e := Errand{Session: id, Wake: wake}
	v, err := s.reach(ctx, e)
	for begun := time.Now(); s.worthReaching(err) && time.Since(begun) < patience; v, err = s.reach(ctx, e) {
		if sleep.For(ctx, askAgain) != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
	return v, reachable(err)
}

// worthReaching reports whether another server may take a session over in a
// moment.
func (s *Sessions) worthReaching(err error) bool {
	if err == nil || s.shared == nil || errors.Is(err, errNoLease) {
		return false
	}
	return errors.Is(err, ErrUnreached) || errors.Is(err, dormouse.ErrLeaseLost) || errors.Is(err, dormouse.ErrUnknownOutcome)
}

func (s *Sessions) reach(ctx context.Context, e Errand) (*Visit, error) {
	if owner, ok := s.found(e.Session); ok {
		if v, err := s.reachThere(ctx, owner, e); !errors.Is(err, ErrUnreached) {
			return v, err
		}
	}
	v, err := s.ReachHere(ctx, e)
	if other, ok := elsewhere(err); ok {
		return s.reachThere(ctx, other.Owner, e)
	}
	return v, err
}

// ReachHere visits a sandbox that this server holds, or can. If another server
// owns the session, it says which.
func (s *Sessions) ReachHere(ctx context.Context, e Errand) (v *Visit, err error) {
	err = s.onActor(ctx, e.Session, func(a *Actor) error {
		v, err = a.visit(ctx, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.receive(v)
}

// reachThere visits a sandbox that another server holds. Whatever is done on the
// visit is an errand for that server, about the sandbox that was found first.
func (s *Sessions) reachThere(ctx context.Context, owner Server, e Errand) (*Visit, error) {
	f, err := there{sessions: s, owner: owner, to: e}.run(ctx, Errand{})
	if err != nil {
		return nil, err
	}
	e.Wake, e.Generation = false, f.Generation
	return s.receive(newVisit(s.visiting, there{sessions: s, owner: owner, to: e}, f.Generation, func() {}))
}

// receive makes a visit end with the server, and Close wait for it.
func (s *Sessions) receive(v *Visit) (*Visit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		v.Close()
		return nil, dormouse.ErrClosing
	}
	s.visits.Add(1)
	stop, leave := context.AfterFunc(s.visiting, func() { v.end(dormouse.ErrClosing) }), v.leave
	v.leave = func() {
		stop()
		leave()
		s.visits.Done()
	}
	return v, nil
}

// visitor waits to be let in.
type visitor struct {
	Errand
	reply chan visitReply // holds one
}

type visitReply struct {
	visit *Visit
	err   error
}

// visit waits for the sandbox. It is called by the visitor.
func (a *Actor) visit(ctx context.Context, e Errand) (*Visit, error) {
	c := &visitor{Errand: e, reply: make(chan visitReply, 1)}
	if err := a.send(ctx, message{act: func(context.Context) error { return a.knock(c) }}); err != nil {
		return nil, err
	}
	var err error
	select {
	case r := <-c.reply:
		return r.visit, r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-a.quit:
		err = errDropped
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

// knock takes a visitor's wish. What is asked on a visit that another server
// received is part of that visit.
func (a *Actor) knock(c *visitor) error {
	part := c.Generation != 0 && c.Stream == nil
	if n := len(a.visitors) + int(a.visits.Load()); n >= maxVisits && !part {
		return fmt.Errorf("%d visitors are in this sandbox, and no more can be: %w", n, dormouse.ErrConflict)
	}
	if err := a.refuses(c); err != nil {
		return err
	}
	a.visitors = append(a.visitors, c)
	return nil
}

// refuses says why a visitor has nothing to wait for.
func (a *Actor) refuses(c *visitor) error {
	s := a.state.Sandbox
	switch {
	case a.state.Terminated != nil:
		return dormouse.ErrTerminated
	case c.Generation != 0 && (s.Phase != law.SandboxActive || s.Generation != c.Generation):
		return a.noLonger()
	case c.Wake || s.Phase == law.SandboxActive || s.Phase == law.SandboxWarming:
		return nil
	case s.Phase == law.SandboxStopping:
		return a.noLonger()
	}
	return fmt.Errorf("session is %s and has no sandbox now; wake it first: %w", law.PhaseOf(a.state), dormouse.ErrConflict)
}

// noLonger says what became of the sandbox that visitors were in.
func (a *Actor) noLonger() error {
	if a.state.Sandbox.Phase == law.SandboxStopping {
		return fmt.Errorf("the sandbox is being stopped: %w", dormouse.ErrConflict)
	}
	return fmt.Errorf("the sandbox that was visited is gone: %w", dormouse.ErrConflict)
}

// leaves notes that somebody has left the sandbox.
func (a *Actor) leaves() {
	a.left.Store(a.deps.Clock().UnixNano())
	a.visits.Add(-1)
}

// sortVisitors tells those who have nothing to wait for, and reports whether
// anybody still waits.
func (a *Actor) sortVisitors() bool {
	a.visitors = slices.DeleteFunc(a.visitors, func(c *visitor) bool {
		err := a.refuses(c)
		if err != nil {
			c.reply <- visitReply{err: err}
		}
		return err != nil
	})
	return len(a.visitors) > 0
}

// letIn lets visitors into the sandbox that is held.
func (a *Actor) letIn() {
	for _, c := range a.visitors {
		m, ok := a.box.live.(sandbox.Machine)
		if !ok {
			c.reply <- visitReply{err: fmt.Errorf("sandboxes of this kind cannot be visited: %w", dormouse.ErrConflict)}
			continue
		}
		a.visits.Add(1)
		c.reply <- visitReply{visit: newVisit(a.box.ctx, here{m, a.box.generation, a.touch}, a.box.generation, a.leaves)}
	}
	a.visitors = nil
}

// touch has it recorded that files may change. It is called by the visitor.
func (a *Actor) touch(ctx context.Context, t dormouse.WorkspaceTouch) (done func(), err error) {
	a.opened.Add(1) // first, so that a point that is made meanwhile knows of it
	a.streams.Add(1)
	done = func() { a.streams.Add(-1) }
	err = a.send(ctx, message{act: func(ctx context.Context) error {
		switch w := a.state.Workspace; {
		case w.Policy == "":
			return nil // nobody wants to know
		case w.Touched > 0 && (a.capture.id == "" || w.Touched > a.capture.at):
			return nil // it is known, and no point that is being made will make anybody think otherwise
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

// turnAway tells visitors that the sandbox they wait for could not be had.
func (a *Actor) turnAway(cause error) {
	for _, c := range a.visitors {
		c.reply <- visitReply{err: fmt.Errorf("%w: %w", cause, dormouse.ErrConflict)}
	}
	a.visitors = nil
}
