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

// heldSandbox is the actor's hold on its sandbox.
type heldSandbox struct {
	busy       bool                    // something is being done to it
	abandon    context.CancelCauseFunc // ends a create, an attach or a freeze that is under way; nil if none is
	freezing   bool                    // which it is
	generation uint64
	live       sandbox.Sandbox // nil while it is not needed
	ctx        context.Context //nolint:containedctx // ends with this hold, not with a request
	cancel     context.CancelCauseFunc
}

// waiter is an attempt that needs the sandbox.
type waiter struct {
	law.Work
	reply chan<- sandboxReply
}

type sandboxReply struct {
	live       sandbox.Sandbox
	generation uint64
	err        error
}

func (b *heldSandbox) idle() bool { return !b.busy && b.live == nil }

// release closes the sandbox, which lives on, and tells visitors why.
func (b *heldSandbox) release(cause error) {
	if b.cancel != nil {
		b.cancel(cause)
	}
	if b.live != nil {
		_ = b.live.Close()
	}
	*b = heldSandbox{busy: b.busy}
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
	if e.Image != "" && e.Image != dormouse.HostImage || len(s.Workspace.Layers) > 0 || len(s.Workspace.Chain) > 0 {
		limit += fetchTimeout
	}
	if !e.Packages.IsZero() {
		limit += installTimeout
	}
	return limit
}

// reconcileSandbox moves the sandbox to where it should be, one step at a time.
func (a *Actor) reconcileSandbox(ctx context.Context, w law.Wanted) error {
	a.waiters = slices.DeleteFunc(a.waiters, func(w waiter) bool { return !a.isCurrent(w.Work) }) // their context has ended
	if a.sandbox.live != nil && (w.Sandbox.Phase != law.SandboxActive || w.Sandbox.Generation != a.sandbox.generation) {
		a.sandbox.release(a.sandboxGone())
	}
	a.refuseVisitors()
	demand := len(a.waiters)+len(a.visitors) > 0
	if a.stopWaiting != nil && a.state.Terminated != nil {
		a.stopWaiting()
	}
	if a.sandbox.busy {
		// A runner that does not answer must not prevent the end of its session.
		if a.sandbox.abandon != nil && (a.state.Terminated != nil || w.Sandbox.Phase == law.SandboxStopping && !a.sandbox.freezing) {
			a.sandbox.abandon(errAbandoned)
		}
		return nil
	}
	if a.snapshot.id != "" && (w.Sandbox.Phase == law.SandboxWarming || w.Sandbox.Phase == law.SandboxStopping) {
		return nil // a snapshot of the workspace is being taken, and was cancelled
	}
	fence := a.sandboxFence(w.Sandbox.Generation)
	switch w.Sandbox.Phase {
	case law.SandboxCold:
		if w.Warm(demand) {
			return a.commitOwn(ctx, law.Warm{})
		}
	case law.SandboxWarming:
		if !a.acquireSlot(ctx) {
			return nil
		}
		state := a.state
		spec := sandbox.Spec{Fence: fence, Environment: state.Environment, Image: state.Image, Fresh: state.Workspace.Fresh}
		a.workUntilAbandoned(ctx, recoverTimeout+createWithin(state), func(ctx context.Context) func(context.Context) error {
			var live sandbox.Sandbox
			var lost *sandbox.Recovered
			var err error
			if spec.Workspace, err = a.workspaceOf(ctx, state); err == nil {
				lost, err = a.recoverFiles(ctx, state, spec.Workspace)
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
				if recordErr := a.recordRecovery(ctx, lost); recordErr != nil {
					if live != nil {
						_ = live.Close()
					}
					a.backOff(ctx)
					return recordErr
				}
				return a.created(ctx, fence.Generation, live, err)
			}
		})
	case law.SandboxActive:
		if a.sandbox.live != nil {
			a.serveWaiters(sandboxReply{live: a.sandbox.live, generation: a.sandbox.generation})
			a.serveVisitors()
			return nil
		}
		if !w.Attach(demand || a.checkIdle) {
			return nil
		}
		a.workUntilAbandoned(ctx, attachTimeout, func(ctx context.Context) func(context.Context) error {
			live, err := a.attach(ctx, w.Sandbox.Handle, fence)
			return func(ctx context.Context) error { return a.attached(ctx, fence.Generation, live, err) }
		})
	case law.SandboxStopping:
		do := a.work
		if w.Sandbox.Keep { // processes are not kept for a session that ends meanwhile
			do, a.sandbox.freezing = a.workUntilAbandoned, true
		}
		do(ctx, stopTimeout, func(ctx context.Context) func(context.Context) error {
			crash.At(crash.SandboxStopping)
			down, err := a.stop(ctx, w.Sandbox, fence)
			if err != nil && errors.Is(context.Cause(ctx), errAbandoned) {
				err = errAbandoned
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

// errAbandoned is why a sandbox is neither started, reached nor frozen any more.
var errAbandoned = errors.New("it is to be stopped")

// workUntilAbandoned does work whose result may become unwanted, and abandons it then.
func (a *Actor) workUntilAbandoned(ctx context.Context, limit time.Duration, f func(context.Context) func(context.Context) error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	a.sandbox.abandon = giveUp
	a.work(ctx, limit, func(ctx context.Context) func(context.Context) error {
		defer giveUp(nil)
		then := f(ctx)
		return func(ctx context.Context) error {
			a.sandbox.abandon, a.sandbox.freezing = nil, false
			return then(ctx)
		}
	})
}

// work does something slow to the sandbox and reports back.
func (a *Actor) work(ctx context.Context, limit time.Duration, f func(context.Context) func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	a.sandbox.busy = true
	a.running.Go(func() {
		defer cancel()
		if err := a.lease.Holds(); err != nil {
			a.report(func(context.Context) error { a.broken = err; return err })
			return
		}
		then := f(ctx)
		a.report(func(ctx context.Context) error {
			a.sandbox.busy = false
			return then(ctx)
		})
	})
}

// backOff leaves the sandbox alone for a while: what failed at once must not spin.
func (a *Actor) backOff(ctx context.Context) {
	if a.sandbox.busy {
		return // it is left alone already, or in hands that will report
	}
	a.sandbox.busy = true
	a.later(ctx, func(context.Context) error {
		a.sandbox.busy = false
		return nil
	})
}

func (a *Actor) created(ctx context.Context, generation uint64, live sandbox.Sandbox, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx) // the next server finds the intent
	case errors.Is(err, dormouse.ErrFull) && a.state.Sandbox.Phase == law.SandboxWarming && a.state.Sandbox.Generation == generation && a.state.Terminated == nil:
		return a.waitForDisk(ctx, generation, fmt.Errorf("sandbox could not be started: %w", err))
	case err != nil:
		a.logger.WarnContext(ctx, "sandbox not created", "generation", generation, "error", err)
		return a.sandboxFailed(ctx, generation, fmt.Errorf("sandbox could not be started: %w", err))
	}
	up := law.SandboxUp{Generation: generation, Handle: live.Handle(), IdleTimeout: a.deps.IdleTimeout, Watched: true}
	if i, ok := live.(sandbox.FromImage); ok {
		up.Image = i.ImageDigest()
	}
	if w, ok := live.(sandbox.Restored); ok {
		up.Kept, up.Lost = w.Processes().Kept, w.Processes().Lost
	}
	if s, ok := live.(sandbox.PackageReporter); ok && !up.Kept { // else it was reported before
		up.Missing = s.MissingPackages()
	}
	up.Snapshots, up.Seals = a.snapshotPolicy()
	if err := a.do(ctx, up); err != nil {
		_ = live.Close()
		a.backOff(ctx)
		return err
	}
	a.releaseLayers(a.state.Workspace.Number)
	a.diskLogged = false
	a.logger.InfoContext(ctx, "sandbox started", "generation", generation)
	a.watch(ctx, generation, live)
	return nil
}

// waitForDisk tries a sandbox for which the disk has no room again later. Turns wait
// meanwhile, which costs no attempt, and what hibernates is not lost; visitors are refused.
func (a *Actor) waitForDisk(ctx context.Context, generation uint64, cause error) error {
	if !a.diskLogged {
		a.diskLogged = true
		a.logger.WarnContext(ctx, "sandbox waits for room on the disk", "generation", generation, "error", cause)
	}
	a.failVisitors(cause)
	a.backOff(ctx)
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
		a.watch(ctx, generation, live)
		return nil
	case errors.Is(err, sandbox.ErrGone):
		return a.sandboxFailed(ctx, generation, diedUnwatched(err))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, runner.ErrStale):
		return a.outranked(ctx, err)
	case a.state.Sandbox.Phase != law.SandboxActive:
		return nil // it was given up: it is to be stopped
	}
	a.logger.WarnContext(ctx, "sandbox not reached", "generation", generation, "error", err)
	a.backOff(ctx)
	return nil
}

// outranked ends the actor, since the sandbox has met a newer epoch. If no server has
// claimed that one, the database was restored from a backup and has forgotten it: the next
// actor gets an epoch above it, which no actor has had.
func (a *Actor) outranked(ctx context.Context, err error) error {
	a.broken = err
	stale, ok := errors.AsType[*runner.StaleError](err)
	if !ok {
		return err
	}
	newest, lookErr := a.deps.Store.Epoch(ctx, a.id)
	if lookErr != nil || newest != a.epoch || a.lease.Holds() != nil {
		return errors.Join(err, lookErr) // a server with a newer epoch has the session
	}
	a.logger.WarnContext(ctx, "the sandbox knows a newer epoch than the database", "epoch", a.epoch, "sandbox", stale.Known.Epoch)
	_, claimErr := a.deps.Store.Claim(ctx, a.id, stale.Known.Epoch)
	return errors.Join(err, claimErr)
}

// watch keeps a living sandbox, watches for its death and records what was ended
// in it.
func (a *Actor) watch(ctx context.Context, generation uint64, live sandbox.Sandbox) {
	watched, cancel := context.WithCancelCause(ctx)
	a.sandbox.generation, a.sandbox.live, a.sandbox.ctx, a.sandbox.cancel = generation, live, watched, cancel
	a.running.Go(func() {
		var again <-chan time.Time
		for reliefs := reliefsOf(live); ; {
			select {
			case <-watched.Done():
				return
			case <-live.Gone():
				a.report(func(ctx context.Context) error {
					return a.sandboxFailed(ctx, generation, causeOfDeath(live))
				})
				return
			case why := <-reliefs:
				a.report(func(ctx context.Context) error {
					return a.do(ctx, law.SandboxRelieved{Generation: generation, Reason: why})
				})
				reliefs, again = nil, time.After(reliefInterval)
			case <-again:
				reliefs = reliefsOf(live)
			}
		}
	})
}

// reliefInterval is how long nothing is recorded of processes that were ended after
// some were: what a sandbox does by itself must not fill the log.
const reliefInterval = time.Minute

func reliefsOf(live sandbox.Sandbox) <-chan string {
	if r, ok := live.(sandbox.OOMReporter); ok {
		return r.OOMKills()
	}
	return nil
}

// causeOfDeath says that a sandbox is gone, and why if it knows.
func causeOfDeath(live sandbox.Sandbox) error {
	if m, ok := live.(sandbox.ExitReporter); ok && m.ExitCause() != nil {
		return fmt.Errorf("the sandbox died: %w", m.ExitCause())
	}
	return errors.New("the sandbox died")
}

// diedUnwatched says that a sandbox was found to be gone.
func diedUnwatched(err error) error {
	return fmt.Errorf("the sandbox died while nobody watched: %w", err)
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
			a.failedFreezes = maxFreezes // no sandbox sleeps over files that may not be there
		}
		if a.failedFreezes++; err == nil || errors.Is(err, sandbox.ErrGone) || errors.Is(err, runner.ErrStale) || a.failedFreezes < maxFreezes {
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
		return a.sandboxFailed(ctx, down.Generation, fmt.Errorf("the sandbox died before it was frozen: %w", err))
	case errors.Is(err, runner.ErrStale):
		return a.outranked(ctx, err)
	case errors.Is(err, errAbandoned):
		return nil // it is stopped without
	case err != nil:
		a.logger.WarnContext(ctx, "sandbox not stopped", "generation", down.Generation, "error", err)
		a.backOff(ctx)
		return err
	}
	a.failedFreezes = 0
	if err := a.do(ctx, down); err != nil {
		a.backOff(ctx)
		return err
	}
	return nil
}

// sandboxFailed records that a sandbox is gone, and tells those that wait for it. A late
// report, of one that is known to be gone or replaced, changes nothing.
func (a *Actor) sandboxFailed(ctx context.Context, generation uint64, cause error) error {
	if s := a.state.Sandbox; s.Phase == law.SandboxCold || s.Generation != generation {
		return nil
	}
	if a.sandbox.generation == generation {
		a.sandbox.release(fmt.Errorf("%w: %w", cause, dormouse.ErrConflict))
	}
	a.serveWaiters(sandboxReply{err: cause})
	if a.state.Sandbox.Phase == law.SandboxWarming {
		a.failVisitors(cause) // of visitors that wait otherwise, those that may wake a sandbox get the next one
	}
	if err := a.do(ctx, law.SandboxGone{Generation: generation, Reason: cause.Error()}); err != nil {
		a.backOff(ctx)
		return err
	}
	return nil
}

func (a *Actor) serveWaiters(r sandboxReply) {
	for _, w := range a.waiters {
		w.reply <- r
	}
	a.waiters = nil
}
