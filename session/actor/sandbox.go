package actor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
)

// box is the actor's hold on its sandbox.
type box struct {
	busy       bool                    // something is being done to it
	giveUp     context.CancelCauseFunc // ends a create, an attach or a freeze that is under way; nil if none is
	freezing   bool                    // which it is
	generation uint64
	live       sandbox.Sandbox // nil while nobody needs it
	ctx        context.Context //nolint:containedctx // ends with this hold, not with a request
	cancel     context.CancelCauseFunc
}

// waiter is an attempt that needs the sandbox.
type waiter struct {
	law.Work
	reply chan<- boxReply
}

type boxReply struct {
	live       sandbox.Sandbox
	generation uint64
	err        error
}

func (b *box) free() bool { return !b.busy && b.live == nil }

// close lets go of the sandbox, which lives on, and tells visitors why.
func (b *box) close(cause error) {
	if b.cancel != nil {
		b.cancel(cause)
	}
	if b.live != nil {
		_ = b.live.Close()
	}
	*b = box{busy: b.busy}
}

// How long a driver may take before a sandbox counts as failed.
const (
	createTimeout = 60 * time.Second
	fetchTimeout  = 15 * time.Minute // an image or layers may have to be fetched
	// installTimeout is for packages, which come from several places.
	installTimeout = 30 * time.Minute
	// recoverTimeout is for files after a power cut: a check that is cut off begins anew.
	recoverTimeout = 30 * time.Minute
	attachTimeout  = 10 * time.Second
	stopTimeout    = 30 * time.Second
)

// createWithin is how long a sandbox may take to be made.
func createWithin(s law.State) time.Duration {
	e, limit := s.Environment, createTimeout
	if e.Image != "" && e.Image != dormouse.HostImage || len(s.Workspace.Layers) > 0 || len(s.Workspace.Line) > 0 {
		limit += fetchTimeout
	}
	if !e.Packages.IsZero() {
		limit += installTimeout
	}
	return limit
}

// reconcileSandbox moves the sandbox to where it should be, one step at a time.
func (a *Actor) reconcileSandbox(ctx context.Context, w law.Wanted) error {
	a.waiters = slices.DeleteFunc(a.waiters, func(w waiter) bool { return !a.current(w.Work) }) // their context has ended
	if a.box.live != nil && (w.Sandbox.Phase != law.SandboxActive || w.Sandbox.Generation != a.box.generation) {
		a.box.close(a.noLonger())
	}
	a.refuseVisitors()
	demand := len(a.waiters)+len(a.visitors) > 0
	if a.unqueue != nil && a.state.Terminated != nil {
		a.unqueue()
	}
	if a.box.busy {
		// A runner that does not answer keeps nobody from ending its session.
		if a.box.giveUp != nil && (a.state.Terminated != nil || w.Sandbox.Phase == law.SandboxStopping && !a.box.freezing) {
			a.box.giveUp(errGivenUp)
		}
		return nil
	}
	if a.capture.id != "" && (w.Sandbox.Phase == law.SandboxWarming || w.Sandbox.Phase == law.SandboxStopping) {
		return nil // a point is made of the workspace; it was told to end
	}
	fence := a.sandboxFence(w.Sandbox.Generation)
	switch w.Sandbox.Phase {
	case law.SandboxCold:
		if w.Warm(demand) {
			return a.own(ctx, law.Warm{})
		}
	case law.SandboxWarming:
		if !a.sit(ctx) {
			return nil
		}
		state := a.state
		spec := sandbox.Spec{Fence: fence, Environment: state.Environment, Image: state.Image, Fresh: state.Workspace.Fresh}
		a.try(ctx, recoverTimeout+createWithin(state), func(ctx context.Context) func(context.Context) error {
			var live sandbox.Sandbox
			var lost *sandbox.Recovered
			var err error
			if spec.Workspace, err = a.workspaceOf(ctx, state); err == nil {
				lost, err = a.recover(ctx, state, spec.Workspace)
			}
			if err == nil {
				within, cancel := context.WithTimeout(ctx, createWithin(state))
				live, err = a.deps.Driver.Create(within, spec)
				cancel()
			}
			if err == nil {
				crash.At(crash.SandboxCreated)
			}
			return func(ctx context.Context) error {
				if told := a.recovered(ctx, lost); told != nil {
					if live != nil {
						_ = live.Close()
					}
					a.pause(ctx)
					return told
				}
				return a.created(ctx, fence.Generation, live, err)
			}
		})
	case law.SandboxActive:
		if a.box.live != nil {
			a.serveWaiters(boxReply{live: a.box.live, generation: a.box.generation})
			a.letIn()
			return nil
		}
		if !w.Attach(demand || a.looks) {
			return nil
		}
		a.try(ctx, attachTimeout, func(ctx context.Context) func(context.Context) error {
			live, err := a.attach(ctx, w.Sandbox.Handle, fence)
			return func(ctx context.Context) error { return a.attached(ctx, fence.Generation, live, err) }
		})
	case law.SandboxStopping:
		do := a.work
		if w.Sandbox.Keep { // nobody keeps what runs for a session that ends meanwhile
			do, a.box.freezing = a.try, true
		}
		do(ctx, stopTimeout, func(ctx context.Context) func(context.Context) error {
			crash.At(crash.SandboxStopping)
			down, err := a.stop(ctx, w.Sandbox, fence)
			if err != nil && errors.Is(context.Cause(ctx), errGivenUp) {
				err = errGivenUp
			}
			crash.At(crash.SandboxStopped)
			return func(ctx context.Context) error { return a.stopped(ctx, down, err) }
		})
	}
	return nil
}

// sandboxFence is what everything done to a sandbox of the session carries.
func (a *Actor) sandboxFence(generation uint64) runner.Fence {
	return runner.Fence{Session: a.id, Generation: generation, Epoch: a.epoch}
}

// errGivenUp is why a sandbox is neither started, reached nor frozen any more.
var errGivenUp = errors.New("it is to be stopped")

// try is work that is given up once nobody wants what comes of it.
func (a *Actor) try(ctx context.Context, limit time.Duration, f func(context.Context) func(context.Context) error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	a.box.giveUp = giveUp
	a.work(ctx, limit, func(ctx context.Context) func(context.Context) error {
		defer giveUp(nil)
		then := f(ctx)
		return func(ctx context.Context) error {
			a.box.giveUp, a.box.freezing = nil, false
			return then(ctx)
		}
	})
}

// work does something slow to the sandbox and reports back.
func (a *Actor) work(ctx context.Context, limit time.Duration, f func(context.Context) func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	a.box.busy = true
	a.running.Go(func() {
		defer cancel()
		if err := a.lease.Holds(); err != nil {
			a.report(func(context.Context) error { a.broken = err; return err })
			return
		}
		then := f(ctx)
		a.report(func(ctx context.Context) error {
			a.box.busy = false
			return then(ctx)
		})
	})
}

// pause leaves the sandbox alone for a while: what failed at once must not spin.
func (a *Actor) pause(ctx context.Context) {
	if a.box.busy {
		return // it is left alone already, or in hands that will report
	}
	a.box.busy = true
	a.later(ctx, func(context.Context) error {
		a.box.busy = false
		return nil
	})
}

func (a *Actor) created(ctx context.Context, generation uint64, live sandbox.Sandbox, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx) // the next server finds the intent
	case errors.Is(err, dormouse.ErrFull) && a.state.Sandbox.Phase == law.SandboxWarming && a.state.Sandbox.Generation == generation && a.state.Terminated == nil:
		return a.delay(ctx, generation, fmt.Errorf("sandbox could not be started: %w", err))
	case err != nil:
		a.slog.WarnContext(ctx, "sandbox not created", "generation", generation, "error", err)
		return a.boxFailed(ctx, generation, fmt.Errorf("sandbox could not be started: %w", err))
	}
	up := law.SandboxUp{Generation: generation, Handle: live.Handle(), IdleTimeout: a.deps.IdleTimeout, Watched: true}
	if i, ok := live.(sandbox.Imaged); ok {
		up.Image = i.Image()
	}
	if w, ok := live.(sandbox.Woken); ok {
		up.Kept, up.Lost = w.Processes().Kept, w.Processes().Lost
	}
	if s, ok := live.(sandbox.Stocked); ok && !up.Kept { // else it was told
		up.Missing = s.Missing()
	}
	up.Snapshots, up.Seals = a.policy()
	if err := a.do(ctx, up); err != nil {
		_ = live.Close()
		a.pause(ctx)
		return err
	}
	a.release(a.state.Workspace.Number)
	a.delayed = false
	a.slog.InfoContext(ctx, "sandbox started", "generation", generation)
	a.hold(ctx, generation, live)
	return nil
}

// delay leaves a sandbox for which the disk has no room for later. Turns stand still
// meanwhile, which costs no attempt, and what sleeps is not lost; people are told.
func (a *Actor) delay(ctx context.Context, generation uint64, cause error) error {
	if !a.delayed {
		a.delayed = true
		a.slog.WarnContext(ctx, "sandbox waits for room on the disk", "generation", generation, "error", cause)
	}
	a.turnAway(cause)
	a.pause(ctx)
	if len(law.Want(a.state).Execs) > 0 {
		return a.do(ctx, law.SandboxDelayed{Generation: generation, Reason: cause.Error()})
	}
	return nil
}

// attach reaches the sandbox a server before us started. One that lives and
// does not answer is ended, so that the session is not stuck with it.
func (a *Actor) attach(ctx context.Context, h sandbox.Handle, f runner.Fence) (sandbox.Sandbox, error) {
	live, err := a.deps.Driver.Attach(ctx, h, f)
	if err == nil || errors.Is(err, sandbox.ErrGone) || errors.Is(err, runner.ErrStale) {
		return live, err
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if stopErr := a.deps.Driver.Stop(stop, h, f); stopErr == nil {
			return nil, fmt.Errorf("it did not answer: %w", sandbox.ErrGone)
		}
	}
	return nil, err
}

func (a *Actor) attached(ctx context.Context, generation uint64, live sandbox.Sandbox, err error) error {
	switch {
	case err == nil:
		a.hold(ctx, generation, live)
		return nil
	case errors.Is(err, sandbox.ErrGone):
		return a.boxFailed(ctx, generation, fmt.Errorf("the sandbox died while nobody watched: %w", err))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case a.state.Sandbox.Phase != law.SandboxActive:
		return nil // it was given up: it is to be stopped
	}
	a.slog.WarnContext(ctx, "sandbox not reached", "generation", generation, "error", err)
	a.pause(ctx)
	return nil
}

// hold keeps a living sandbox, watches for its death and records what was ended
// in it.
func (a *Actor) hold(ctx context.Context, generation uint64, live sandbox.Sandbox) {
	watched, cancel := context.WithCancelCause(ctx)
	a.box.generation, a.box.live, a.box.ctx, a.box.cancel = generation, live, watched, cancel
	a.running.Go(func() {
		var again <-chan time.Time
		for reliefs := reliefsOf(live); ; {
			select {
			case <-watched.Done():
				return
			case <-live.Gone():
				a.report(func(ctx context.Context) error {
					return a.boxFailed(ctx, generation, died(live))
				})
				return
			case why := <-reliefs:
				a.report(func(ctx context.Context) error {
					return a.do(ctx, law.SandboxRelieved{Generation: generation, Reason: why})
				})
				reliefs, again = nil, time.After(reliefPause)
			case <-again:
				reliefs = reliefsOf(live)
			}
		}
	})
}

// reliefPause is how long nothing is recorded of processes that were ended after
// some were: what a sandbox does by itself must not fill the log.
const reliefPause = time.Minute

func reliefsOf(live sandbox.Sandbox) <-chan string {
	if r, ok := live.(sandbox.Relieved); ok {
		return r.Reliefs()
	}
	return nil
}

// died says that a sandbox is gone, and why if it knows.
func died(live sandbox.Sandbox) error {
	if m, ok := live.(sandbox.Mourned); ok && m.Cause() != nil {
		return fmt.Errorf("the sandbox died: %w", m.Cause())
	}
	return errors.New("the sandbox died")
}

// maxFreezes is how often it is tried to keep what runs in a sandbox before it is
// stopped without.
const maxFreezes = 3

// stop stops a sandbox, and keeps what runs in it if that is wanted and possible.
func (a *Actor) stop(ctx context.Context, w law.WantedSandbox, f runner.Fence) (law.SandboxDown, error) {
	down := law.SandboxDown{Generation: w.Generation}
	if freezer, ok := a.deps.Driver.(sandbox.Freezer); ok && w.Keep {
		err := freezer.Freeze(ctx, w.Handle, f)
		if errors.Is(err, sandbox.ErrFailed) {
			a.freezes = maxFreezes // no sandbox sleeps over files that may not be there
		}
		if a.freezes++; err == nil || errors.Is(err, sandbox.ErrGone) || errors.Is(err, runner.ErrStale) || a.freezes < maxFreezes {
			down.Kept = err == nil
			return down, err
		}
		down.Lost = err.Error()
	}
	return down, a.deps.Driver.Stop(ctx, w.Handle, f)
}

func (a *Actor) stopped(ctx context.Context, down law.SandboxDown, err error) error {
	switch {
	case errors.Is(err, sandbox.ErrGone):
		return a.boxFailed(ctx, down.Generation, fmt.Errorf("the sandbox died before it was frozen: %w", err))
	case errors.Is(err, runner.ErrStale):
		a.broken = err // somebody newer has it
		return err
	case errors.Is(err, errGivenUp):
		return nil // it is stopped without
	case err != nil:
		a.slog.WarnContext(ctx, "sandbox not stopped", "generation", down.Generation, "error", err)
		a.pause(ctx)
		return err
	}
	a.freezes = 0
	if err := a.do(ctx, down); err != nil {
		a.pause(ctx)
		return err
	}
	return nil
}

// boxFailed records that a sandbox is no more, and tells who waits for it. Who
// says so late, when it is known or another one is there, says nothing new.
func (a *Actor) boxFailed(ctx context.Context, generation uint64, cause error) error {
	if s := a.state.Sandbox; s.Phase == law.SandboxCold || s.Generation != generation {
		return nil
	}
	if a.box.generation == generation {
		a.box.close(fmt.Errorf("%w: %w", cause, dormouse.ErrConflict))
	}
	a.serveWaiters(boxReply{err: cause})
	if a.state.Sandbox.Phase == law.SandboxWarming {
		a.turnAway(cause) // of the others, those who may wake a sandbox get the next
	}
	if err := a.do(ctx, law.SandboxGone{Generation: generation, Reason: cause.Error()}); err != nil {
		a.pause(ctx)
		return err
	}
	return nil
}

func (a *Actor) serveWaiters(r boxReply) {
	for _, w := range a.waiters {
		w.reply <- r
	}
	a.waiters = nil
}
