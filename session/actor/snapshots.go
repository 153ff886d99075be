package actor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

const (
	// snapshotTimeout is the longest that a snapshot may take.
	snapshotTimeout = 15 * time.Minute
	// maxSnapshotTries is how often a snapshot is tried before it is given up.
	maxSnapshotTries = 3
	// storeWithin is how long storing the snapshot of a turn or a tool call may take: the
	// next one waits for it.
	storeWithin = 10 * time.Second
	// longChain is how many layers a chain may have before it is compacted.
	longChain = 12
)

// takingSnapshot is the actor's hold on a snapshot that is being taken.
type takingSnapshot struct {
	id     dormouse.SnapshotID // empty if none is
	at     uint64              // the seq when it was begun
	cancel context.CancelFunc
	failed int // tries of the snapshot that is wanted
}

// reconcileSnapshot takes the snapshot that should be taken. While that goes on, a
// running sandbox stays in use but is not stopped, and a stopped one is not started.
func (a *Actor) reconcileSnapshot(ctx context.Context, w law.Wanted) error {
	if !law.CallSnapshotDue(a.state) {
		for _, taken := range a.snapshotTaken {
			close(taken)
		}
		a.snapshotTaken = nil
	}
	if a.snapshot.id != "" {
		if w.Snapshot == nil || w.Snapshot.ID != a.snapshot.id {
			a.snapshot.cancel()
		}
		return nil
	}
	if w.Snapshot == nil || a.sandbox.busy || a.postponed {
		return nil
	}
	driver, ok := a.deps.Driver.(sandbox.Snapshotter)
	if !ok || a.deps.Snapshots == nil {
		return a.commitOwn(ctx, law.SkipSnapshot{SnapshotSkip: dormouse.SnapshotSkip{
			ID: w.Snapshot.ID, Reason: w.Snapshot.Reason, Error: "this server takes no snapshots",
		}})
	}
	within, cancel := context.WithTimeout(ctx, snapshotTimeout)
	a.snapshot.id, a.snapshot.at, a.snapshot.cancel = w.Snapshot.ID, a.state.Seq, cancel
	state, live := a.state, a.liveNow(within)
	a.running.Go(func() {
		defer cancel()
		err := a.lease.Holds()
		var taken *dormouse.Snapshot
		var lost *sandbox.Recovered
		open := true
		at := state.Seq // the snapshot has all that was recorded by now
		if err == nil {
			open = live()
			taken, lost, err = a.takeSnapshot(within, driver, state, *w.Snapshot)
		}
		if errors.Is(err, sandbox.ErrFailed) && state.Sandbox.Phase == law.SandboxActive {
			err = a.stopFailed(within, state, err)
		}
		if errors.Is(err, errTooLarge) {
			at, err = 0, nil
		}
		a.report(func(ctx context.Context) error {
			a.snapshot.id = ""
			if err := a.recordRecovery(ctx, lost); err != nil {
				a.postpone(ctx)
				return err
			}
			if errors.Is(err, sandbox.ErrGone) && state.Sandbox.Phase == law.SandboxActive {
				// The actor may not be attached, and then nothing else reports it. The snapshot is
				// taken of the files that the sandbox left.
				return a.sandboxFailed(ctx, state.Sandbox.Generation, diedUnwatched(err))
			}
			if taken != nil {
				taken.Live = open
			}
			return a.recordSnapshot(ctx, *w.Snapshot, taken, dormouse.SnapshotSkip{At: at, Live: open}, err)
		})
	})
	return nil
}

// recordSnapshot records a snapshot that was taken, or why it was not.
func (a *Actor) recordSnapshot(ctx context.Context, w law.WantedSnapshot, taken *dormouse.Snapshot, same dormouse.SnapshotSkip, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // the next server takes it
	}
	if want := law.WantSnapshot(a.state); want == nil || want.ID != w.ID {
		return nil // it is not wanted any more
	}
	skip := law.SkipSnapshot{SnapshotSkip: dormouse.SnapshotSkip{ID: w.ID, Reason: w.Reason}}
	switch {
	case errors.Is(err, runner.ErrStale):
		a.broken = err
		return err
	case err != nil:
		final := errors.Is(err, dormouse.ErrUnavailable) || errors.Is(err, errTooSlow) || errors.Is(err, errLost) || errors.Is(err, sandbox.ErrFailed) // trying again would not help
		if a.snapshot.failed++; a.snapshot.failed < maxSnapshotTries && !final {
			a.logger.WarnContext(ctx, "snapshot not taken", "snapshot", w.ID, "error", err)
			a.postpone(ctx)
			return nil
		}
		a.logger.ErrorContext(ctx, "snapshot given up", "snapshot", w.ID, "error", err)
		skip.Error, skip.Full = dormouse.CleanText(err.Error()), errors.Is(err, dormouse.ErrFull)
		err = a.do(ctx, skip)
	case taken == nil:
		skip.At, skip.Live = same.At, same.Live
		err = a.do(ctx, skip)
	default:
		crash.At(crash.SnapshotRecording)
		err = a.do(ctx, law.TakeSnapshot{Snapshot: *taken, Keep: a.deps.Retention})
		crash.At(crash.SnapshotRecorded)
	}
	if err != nil {
		a.postpone(ctx)
		return err
	}
	a.snapshot.failed = 0
	a.compactChain(ctx)
	return nil
}

var (
	// errTooSlow gives up a snapshot that others wait for.
	errTooSlow = errors.New("it took too long to keep, and others wait for it")
	// errLost refuses a snapshot that could not be restored.
	errLost = errors.New("the files lie over a snapshot that cannot be read any more")
	// errTooLarge leaves a workspace unsealed, in its volume.
	errTooLarge = errors.New("the layers would be more than the session may have")
)

// takeSnapshot copies what changed in the workspace and stores it. It returns nil if
// nothing did and no snapshot was asked for.
func (a *Actor) takeSnapshot(ctx context.Context, driver sandbox.Snapshotter, s law.State, w law.WantedSnapshot) (taken *dormouse.Snapshot, lost *sandbox.Recovered, err error) {
	ws, err := a.workspaceOf(ctx, s)
	if err == nil && s.Sandbox.Phase != law.SandboxActive {
		lost, err = a.recoverFiles(ctx, s, ws)
		if lost != nil && lost.Lost != "" {
			s.Workspace.Uncompared = s.Workspace.Newest
		}
	}
	if err == nil {
		taken, err = a.capture(ctx, driver, s, w, ws)
	}
	return taken, lost, err
}

// stopFailed ends a sandbox whose files have failed: what it reads may never have been on
// the disk. The next one begins with what is known to have been there.
func (a *Actor) stopFailed(ctx context.Context, s law.State, why error) error {
	if err := a.deps.Driver.Stop(ctx, s.Sandbox.Handle, a.sandboxFence(s.Sandbox.Generation)); err != nil {
		return errors.Join(why, err)
	}
	a.report(func(ctx context.Context) error { return a.sandboxFailed(ctx, s.Sandbox.Generation, why) })
	return why
}

// capture copies what changed in the workspace to a stage, and stores that as a layer.
func (a *Actor) capture(ctx context.Context, driver sandbox.Snapshotter, s law.State, w law.WantedSnapshot, ws sandbox.Workspace) (*dormouse.Snapshot, error) {
	stage, err := a.deps.Snapshots.Stage(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stage.Close() }()
	// A snapshot that was asked for by name, or that replaces the volume's own files, must
	// not build on a lost blob: if the newest one has lost any, all that lies over the base
	// is captured again. The same holds if a recovery could not read the newest one.
	since := s.Workspace.Newest
	if since == s.Workspace.Uncompared {
		since = ""
	} else if w.Needed() {
		if err := a.deps.Snapshots.Check(ctx, s.Workspace.Chain); history.IsLost(err) {
			since = ""
		} else if err != nil {
			return nil, err
		}
	}
	crash.At(crash.SnapshotCapturing)
	c := sandbox.SnapshotRequest{
		Fence:     a.sandboxFence(s.Sandbox.Generation),
		Workspace: ws, Since: since, As: w.ID, Needed: w.Needed(), To: stage.Dir, Limits: a.deps.Snapshots.Limits(),
	}
	if s.Sandbox.Phase == law.SandboxActive {
		c.Handle = s.Sandbox.Handle
	}
	done, err := driver.Snapshot(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("capture the workspace: %w", err)
	}
	crash.At(crash.SnapshotCaptured)
	for i, path := range done.Left {
		done.Left[i] = dormouse.CleanText(path)
	}
	p := w.Of(s)
	p.Left, p.LeftOut = done.Left, done.Count
	below, err := s.ChainSince(done.Since)
	if err != nil {
		return nil, err
	}
	if w.Needed() && (since != s.Workspace.Newest || done.Since != since) {
		if err := a.deps.Snapshots.Check(ctx, below); history.IsLost(err) {
			return nil, fmt.Errorf("%w: %w", errLost, err)
		} else if err != nil {
			return nil, err
		}
	}
	unchanged := func() (*dormouse.Snapshot, error) {
		if w.Redundant(s, done.Since) {
			return nil, nil //nolint:nilnil // there is nothing to record
		}
		p.Layers = a.deps.Snapshots.Compacted(below)
		return &p, nil
	}
	adds, err := a.deps.Snapshots.Adds(ctx, stage, below)
	if err != nil {
		return nil, err
	}
	if len(below) > 0 && (done.Entries == 0 || !adds) {
		return unchanged()
	}
	if w.Awaited() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, storeWithin, errTooSlow)
		defer cancel()
	}
	layer, err := a.deps.Snapshots.Put(ctx, stage)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	// What was written a moment before the last snapshot may be in it already.
	if n := len(below); n > 0 && below[n-1].DiffID == layer.DiffID {
		return unchanged()
	}
	p.Layers = a.deps.Snapshots.Compacted(append(slices.Clip(below), layer))
	if w.TooLarge(s, p.Layers) {
		return nil, errTooLarge
	}
	return &p, nil
}

// releaseLayers releases the layers of workspaces that the session has replaced.
func (a *Actor) releaseLayers(number uint64) {
	if a.deps.Snapshots == nil {
		return
	}
	const few = 8 // that were swapped before any sandbox had them
	for n := number - min(number, few); n < number; n++ {
		if err := a.deps.Snapshots.Release(a.id, n); err != nil {
			a.logger.Warn("layers not released", "workspace", n, "error", err)
		}
	}
}

// workspaceOf is the workspace of a state with the directories of its layers, which
// are fetched if they are not there.
func (a *Actor) workspaceOf(ctx context.Context, s law.State) (sandbox.Workspace, error) {
	ws := sandbox.Workspace{Number: s.Workspace.Number, Base: s.Workspace.Base, Sealed: s.Workspace.Sealed}
	if len(s.Workspace.Layers) == 0 {
		return ws, nil
	}
	if a.deps.Snapshots == nil {
		return ws, errors.New("the workspace lies over a snapshot, and this server keeps none")
	}
	var err error
	if ws.Layers, err = a.deps.Snapshots.Acquire(ctx, a.id, ws.Number, s.Workspace.Layers, a.feeds.Progress(a.id)); err != nil {
		return ws, fmt.Errorf("fetch the workspace: %w", err)
	}
	return ws, nil
}

// compactChain has a long layer chain compacted in the background, for the snapshots to come.
func (a *Actor) compactChain(ctx context.Context) {
	chain := a.state.Workspace.Chain
	if len(chain) <= longChain || a.compacting {
		return
	}
	a.compacting = true
	a.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
		defer cancel()
		err := a.deps.Snapshots.Compact(ctx, chain)
		a.report(func(ctx context.Context) error {
			a.compacting = false
			if err != nil {
				a.logger.WarnContext(ctx, "layer chain not compacted", "error", err)
			}
			return nil
		})
	})
}

// snapshotPolicy is when snapshots are taken of the session's workspace, empty if they cannot
// be, and whether it is sealed when its sandbox has stopped.
func (a *Actor) snapshotPolicy() (dormouse.SnapshotPolicy, bool) {
	if _, ok := a.deps.Driver.(sandbox.Snapshotter); !ok || a.deps.Snapshots == nil {
		return "", false
	}
	policy := cmp.Or(a.state.Environment.Snapshots, a.deps.SnapshotPolicy, dormouse.SnapshotsByTurn)
	sealer, ok := a.deps.Driver.(sandbox.Sealer)
	return policy, ok && sealer.Seals() && policy != dormouse.SnapshotsOff
}
