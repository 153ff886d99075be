package actor

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

// recoverFiles sees to it that the files of a session without a sandbox are at least those of
// its newest snapshot, if the machine has ended or its disk has failed since. It returns
// nil if all is well, which is quickly seen.
func (a *Actor) recoverFiles(ctx context.Context, s law.State, ws sandbox.Workspace) (*sandbox.Recovered, error) {
	driver, ok := a.deps.Driver.(sandbox.Recoverer)
	if !ok {
		return nil, nil //nolint:nilnil // the driver does not recover files
	}
	r := sandbox.Recovery{
		Fence: a.sandboxFence(s.Sandbox.Generation), Workspace: ws, Snapshot: s.Workspace.Newest,
		Newest: func(ctx context.Context) ([]string, func(), error) {
			if a.deps.Snapshots == nil {
				return nil, func() {}, nil
			}
			layers, done, err := a.deps.Snapshots.View(ctx, s.Workspace.Chain)
			if history.IsLost(err) {
				err = fmt.Errorf("%w: %w", sandbox.ErrSnapshotLost, err)
			}
			return layers, done, err
		},
		Older: func(ctx context.Context) ([]string, func(), error) { return a.readableBelow(ctx, s.Workspace) },
	}
	done, err := driver.Recover(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("recover the workspace: %w", err)
	}
	return done, nil
}

// readableBelow returns as much of a chain from below as can still be read: each layer is
// what one snapshot adds, or several, so that these are the files of an older one. It returns
// none that may be older than what the workspace lies over: a chain that was compacted may
// have merged that with what came later.
func (a *Actor) readableBelow(ctx context.Context, w law.Workspace) ([]string, func(), error) {
	chain := w.Chain
	for len(chain) > len(w.Layers) && slices.Equal(chain[:len(w.Layers)], w.Layers) && a.deps.Snapshots != nil {
		chain = chain[:len(chain)-1]
		layers, done, err := a.deps.Snapshots.View(ctx, chain)
		if !history.IsLost(err) {
			return layers, done, err
		}
	}
	return nil, func() {}, nil
}

// recordRecovery records which files were lost, before anything else is done with the
// workspace. What is recorded is not reported again.
func (a *Actor) recordRecovery(ctx context.Context, r *sandbox.Recovered) error {
	driver, ok := a.deps.Driver.(sandbox.Recoverer)
	if r == nil || !ok {
		return nil
	}
	w := dormouse.WorkspaceRecovery{
		ID: r.ID, Workspace: a.state.Workspace.Number, Snapshot: a.state.Workspace.Newest, Condition: string(r.Condition),
		Reason: dormouse.CleanText(r.Reason), Since: law.Stamp(r.Since), Count: r.Count, Aside: r.Aside, Outside: r.Outside,
	}
	if r.Lost != "" {
		w.Snapshot, w.Uncompared = "", dormouse.CleanText(r.Lost)
	}
	for _, f := range r.Files {
		w.Files = append(w.Files, dormouse.RecoveredFile{Path: dormouse.CleanText(f.Path), SavedAs: dormouse.CleanText(f.SavedAs), Outside: f.Outside})
	}
	if r.Since.IsZero() {
		if p, ok := a.state.Snapshot(a.state.Workspace.Newest); ok {
			w.Since = p.Taken
		}
	}
	if err := a.do(ctx, law.RecordRecovery{WorkspaceRecovery: w}); err != nil {
		return err
	}
	crash.At(crash.RecoverTold)
	if err := driver.ForgetRecovered(*r); err != nil {
		a.logger.WarnContext(ctx, "record of a recovery not removed; the recovery may be reported again", "error", err)
	}
	return nil
}

// syncFiles makes durable what the session's finished tool calls have written, also where
// this server has not reached the sandbox, or it has died since. A disk that fails is noted
// with the files, of which no snapshot is taken from then on: nothing else can be done
// here, and the turn ends.
func (j *journal) syncFiles(ctx context.Context) error {
	driver, ok := j.a.deps.Driver.(sandbox.Syncer)
	if !ok {
		return nil
	}
	var used bool
	var workspace uint64
	var newest dormouse.SnapshotID
	err := j.ask(ctx, func(context.Context, *law.Turn) error {
		if w := j.a.state.Workspace; w.Used || len(w.Calls) > 0 {
			used, workspace = true, w.Number
			if w.Policy == "" || w.Policy == dormouse.SnapshotsOff { // else the turn's snapshot notes what is synced
				newest = w.Newest
			}
		}
		return nil
	})
	if err != nil || !used {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- driver.Sync(ctx, j.a.id, workspace, newest) }() // it ends when the disk answers
	select {
	case err := <-done:
		if err != nil {
			j.a.logger.ErrorContext(ctx, "files of a turn not synced", "turn", j.work.Turn, "error", err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
