package session

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
	"github.com/dormouse-run/dormouse/session/law"
)

const (
	// captureTimeout is how long it may take to make a point.
	captureTimeout = 15 * time.Minute
	// maxCaptures is how often it is tried to make a point before it is not made.
	maxCaptures = 3
	// keepWithin is how long it may take to keep the point of a turn or a tool call, for
	// which the next one waits.
	keepWithin = 10 * time.Second
	// longLine is how many layers a line may have before it is made shorter.
	longLine = 12
)

// capturing is the actor's hold on a point that is being made.
type capturing struct {
	id     dormouse.SnapshotID // empty if none is
	at     uint64              // the seq when it was begun
	cancel context.CancelFunc
	failed int // in vain, of the point that is wanted
}

// reconcileCapture makes the point that should be made. While that goes on, a
// sandbox that runs is used on but not stopped, and one that does not is not started.
func (a *Actor) reconcileCapture(ctx context.Context, w law.Wanted) error {
	if !law.PointDue(a.state) {
		for _, made := range a.pointMade {
			close(made)
		}
		a.pointMade = nil
	}
	if a.capture.id != "" {
		if w.Capture == nil || w.Capture.ID != a.capture.id {
			a.capture.cancel()
		}
		return nil
	}
	if w.Capture == nil || a.box.busy || a.again {
		return nil
	}
	driver, ok := a.deps.Driver.(sandbox.Snapshotter)
	if !ok || a.deps.Snapshots == nil {
		return a.own(ctx, law.SkipSnapshot{SnapshotSkip: dormouse.SnapshotSkip{
			ID: w.Capture.ID, Reason: w.Capture.Reason, Error: "this server takes no snapshots",
		}})
	}
	within, cancel := context.WithTimeout(ctx, captureTimeout)
	a.capture.id, a.capture.at, a.capture.cancel = w.Capture.ID, a.state.Seq, cancel
	state, live := a.state, a.stillLive(within)
	a.running.Go(func() {
		defer cancel()
		err := a.lease.holds()
		var taken *dormouse.Snapshot
		var lost *sandbox.Recovered
		open := true
		at := state.Seq // as far as what is recorded by now, the files are looked at
		if err == nil {
			open = live()
			taken, lost, err = a.makePoint(within, driver, state, *w.Capture)
		}
		if errors.Is(err, sandbox.ErrFailed) && state.Sandbox.Phase == law.SandboxActive {
			err = a.endFailed(within, state, err)
		}
		if errors.Is(err, errTooLarge) {
			at, err = 0, nil
		}
		a.report(func(ctx context.Context) error {
			a.capture.id = ""
			if told := a.recovered(ctx, lost); told != nil {
				a.postpone(ctx)
				return told
			}
			if taken != nil {
				taken.Live = open
			}
			return a.captured(ctx, *w.Capture, taken, dormouse.SnapshotSkip{At: at, Live: open}, err)
		})
	})
	return nil
}

// captured records a point that was made, or why it was not.
func (a *Actor) captured(ctx context.Context, w law.WantedCapture, taken *dormouse.Snapshot, same dormouse.SnapshotSkip, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // the next server makes it
	}
	if want := law.WantCapture(a.state); want == nil || want.ID != w.ID {
		return nil // nobody wants it any more
	}
	skip := law.SkipSnapshot{SnapshotSkip: dormouse.SnapshotSkip{ID: w.ID, Reason: w.Reason}}
	switch {
	case errors.Is(err, runner.ErrStale):
		a.broken = err
		return err
	case err != nil:
		late := errors.Is(err, dormouse.ErrUnavailable) || errors.Is(err, errLate) || errors.Is(err, errLost) || errors.Is(err, sandbox.ErrFailed) // nobody waits for that once more
		if a.capture.failed++; a.capture.failed < maxCaptures && !late {
			a.slog.WarnContext(ctx, "snapshot not taken", "snapshot", w.ID, "error", err)
			a.postpone(ctx)
			return nil
		}
		a.slog.ErrorContext(ctx, "snapshot given up", "snapshot", w.ID, "error", err)
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
	a.capture.failed = 0
	a.shorten(ctx)
	return nil
}

var (
	// errLate gives a point up.
	errLate = errors.New("it took too long to keep, and others wait for it")
	// errLost refuses a point that nobody could restore.
	errLost = errors.New("the files lie over a snapshot that cannot be read any more")
	// errTooLarge leaves a workspace in its volume.
	errTooLarge = errors.New("the layers would be more than the session may have")
)

// makePoint captures what changed in the workspace and keeps it. It returns nil if
// nothing did, and nobody has asked for a point.
func (a *Actor) makePoint(ctx context.Context, driver sandbox.Snapshotter, s law.State, w law.WantedCapture) (taken *dormouse.Snapshot, lost *sandbox.Recovered, err error) {
	ws, err := a.workspaceOf(ctx, s)
	if err == nil && s.Sandbox.Phase != law.SandboxActive {
		lost, err = a.recover(ctx, s, ws)
	}
	if err == nil {
		taken, err = a.capturePoint(ctx, driver, s, w, ws)
	}
	return taken, lost, err
}

// endFailed ends a sandbox whose files have failed: what it reads may never have been on
// the disk. The next one begins with what is known to have been there.
func (a *Actor) endFailed(ctx context.Context, s law.State, why error) error {
	if err := a.deps.Driver.Stop(ctx, s.Sandbox.Handle, a.sandboxFence(s.Sandbox.Generation)); err != nil {
		return errors.Join(why, err)
	}
	a.report(func(ctx context.Context) error { return a.boxFailed(ctx, s.Sandbox.Generation, why) })
	return why
}

func (a *Actor) capturePoint(ctx context.Context, driver sandbox.Snapshotter, s law.State, w law.WantedCapture, ws sandbox.Workspace) (*dormouse.Snapshot, error) {
	stage, err := a.deps.Snapshots.Stage(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stage.Close() }()
	// A snapshot that somebody relies on by name lies over no blob that is lost: if the
	// newest one has lost any, all that lies over the base is captured again.
	since := s.Workspace.Newest
	if w.Reason == dormouse.SnapshotAsked {
		if err := a.deps.Snapshots.Check(ctx, s.Workspace.Line); isLost(err) {
			since = ""
		} else if err != nil {
			return nil, err
		}
	}
	crash.At(crash.SnapshotCapturing)
	c := sandbox.Capture{
		Fence:     a.sandboxFence(s.Sandbox.Generation),
		Workspace: ws, Since: since, As: w.ID, Needed: w.Reason == dormouse.SnapshotAsked || w.Reason == dormouse.SnapshotSealing, To: stage.Dir, Limits: a.deps.Snapshots.Limits(),
	}
	if s.Sandbox.Phase == law.SandboxActive {
		c.Handle = s.Sandbox.Handle
	}
	done, err := driver.Capture(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("capture the workspace: %w", err)
	}
	crash.At(crash.SnapshotCaptured)
	for i, path := range done.Left {
		done.Left[i] = dormouse.CleanText(path)
	}
	p := &dormouse.Snapshot{
		ID: w.ID, Parent: s.Workspace.Newest, Label: w.Label, Reason: w.Reason, At: s.Seq,
		Generation: s.Sandbox.Generation, Workspace: s.Workspace.Number, Left: done.Left, LeftOut: done.Count,
	}
	if w.Reason == dormouse.SnapshotOfTurn {
		p.At = s.Workspace.Due
	}
	p.Midway = s.Works()
	if w.Reason == dormouse.SnapshotOfCall {
		p.At, p.Midway = law.OfCall(s)
	}
	var below []dormouse.Layer
	switch {
	case done.Since != "" && done.Since == s.Workspace.Newest:
		below = s.Workspace.Line
	case done.Since != "" && done.Since == s.Workspace.Base:
		below = s.Workspace.Layers
	case done.Since != "":
		return nil, fmt.Errorf("what changed since %s is of no use", done.Since)
	}
	if w.Reason == dormouse.SnapshotAsked && (since != s.Workspace.Newest || done.Since != since) {
		if err := a.deps.Snapshots.Check(ctx, below); isLost(err) {
			return nil, fmt.Errorf("%w: %w", errLost, err)
		} else if err != nil {
			return nil, err
		}
	}
	unchanged := func() (*dormouse.Snapshot, error) { // as it was at that point
		told := done.Since == s.Workspace.Newest
		if w.Reason == dormouse.SnapshotSealing {
			told = s.Workspace.Newest == s.Workspace.Base
		}
		if told && w.Reason != dormouse.SnapshotAsked {
			return nil, nil //nolint:nilnil // there is nothing to tell
		}
		p.Layers = a.deps.Snapshots.Compacted(below)
		return p, nil
	}
	adds, err := a.deps.Snapshots.Adds(ctx, stage, below)
	if err != nil {
		return nil, err
	}
	if len(below) > 0 && (done.Entries == 0 || !adds) {
		return unchanged()
	}
	if w.Reason == dormouse.SnapshotOfTurn || w.Reason == dormouse.SnapshotOfCall {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, keepWithin, errLate)
		defer cancel()
	}
	layer, err := a.deps.Snapshots.Put(ctx, stage)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	// What was written a moment before the last point may be in it already.
	if n := len(below); n > 0 && below[n-1].DiffID == layer.DiffID {
		return unchanged()
	}
	p.Layers = a.deps.Snapshots.Compacted(append(slices.Clip(below), layer))
	if w.Reason == dormouse.SnapshotSealing && exceeds(p.Layers, s.Environment.Limits.Disk) {
		return nil, errTooLarge // the volume holds the session to its limit; layers do not
	}
	return p, nil
}

// exceeds reports whether the files of layers are more than a limit.
func exceeds(layers []dormouse.Layer, limit int64) bool {
	var bytes int64
	for _, l := range layers {
		bytes += l.Bytes
	}
	return limit > 0 && bytes > limit
}

// release gives back the layers of workspaces that are no more.
func (a *Actor) release(number uint64) {
	if a.deps.Snapshots == nil {
		return
	}
	const few = 8 // that were swapped before any sandbox had them
	for n := number - min(number, few); n < number; n++ {
		if err := a.deps.Snapshots.Release(a.id, n); err != nil {
			a.slog.Warn("layers not released", "workspace", n, "error", err)
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
	if ws.Layers, err = a.deps.Snapshots.Acquire(ctx, a.id, ws.Number, s.Workspace.Layers, a.feeds.fetching(a.id)); err != nil {
		return ws, fmt.Errorf("fetch the workspace: %w", err)
	}
	return ws, nil
}

// shorten has a long line made shorter in the background, for the points to come.
func (a *Actor) shorten(ctx context.Context) {
	line := a.state.Workspace.Line
	if len(line) <= longLine || a.shortens {
		return
	}
	a.shortens = true
	a.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, captureTimeout)
		defer cancel()
		err := a.deps.Snapshots.Compact(ctx, line)
		a.report(func(ctx context.Context) error {
			a.shortens = false
			if err != nil {
				a.slog.WarnContext(ctx, "line not shortened", "error", err)
			}
			return nil
		})
	})
}

// policy is when snapshots are taken of the session's workspace, empty if they cannot
// be, and whether it is sealed when its sandbox has stopped.
func (a *Actor) policy() (dormouse.SnapshotPolicy, bool) {
	if _, ok := a.deps.Driver.(sandbox.Snapshotter); !ok || a.deps.Snapshots == nil {
		return "", false
	}
	policy := cmp.Or(a.state.Environment.Snapshots, a.deps.SnapshotPolicy, dormouse.SnapshotsByTurn)
	sealer, ok := a.deps.Driver.(sandbox.Sealer)
	return policy, ok && sealer.Seals() && policy != dormouse.SnapshotsOff
}
