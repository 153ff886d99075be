package play

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// snapshotKinds are about snapshots of workspaces, and restoring them.
func snapshotKinds() []Kind {
	kinds := []Kind{
		{Name: "snapshot", Create: warm(), Play: snapshots, Look: (*Play).whole},
		{Name: "snapshot-asleep", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := snapshots(ctx, p); err != nil {
				return err
			}
			cold := func(s rig.Shown) bool { return s.Sandbox.Phase != "active" }
			if err := ignoreConflict(p.Insist(ctx, "hibernate", nil, cold)); err != nil {
				return err
			}
			return p.whole(ctx)
		}, Look: (*Play).whole},
		{Name: "snapshot-turns", Create: warm(), Play: turns},
		{Name: "snapshot-first", Create: warm(), Play: first, Look: (*Play).whole},
		{Name: "snapshot-branch", Create: warm(), Play: branches, Look: (*Play).wholeBranches},
		{Name: "snapshot-forget", Create: warm(), Play: forgets, Look: (*Play).whole},
		{Name: "snapshot-long", Create: warm(), Play: long, Look: (*Play).whole},
		{Name: "snapshot-collect", Create: warm(), Play: collects, Look: (*Play).wholeBranches, Kills: true},
		{Name: "snapshot-calls", Create: map[string]any{"environment": map[string]any{"snapshots": "call"}}, Play: calls},
		{Name: "snapshot-image", Create: warm(), Play: image, Look: (*Play).whole},
	}
	for i := range kinds {
		kinds[i].Env, kinds[i].Collects = []string{"DORMOUSE_COLLECT_EVERY=100ms"}, true
	}
	return kinds
}

// snapshots takes a snapshot of a workspace, breaks it and restores the snapshot. Once a
// restore is acknowledged, the files of an acknowledged snapshot must be there again.
func snapshots(ctx context.Context, p *Play) error {
	if _, err := p.mustRun(ctx, "mkdir -p d; echo one > d/kept; ln -sf d/kept link"); err != nil {
		return err
	}
	if err := p.again(ctx, "snapshots", map[string]any{"id": "kept"}); err != nil {
		return err
	}
	if _, err := p.mustRun(ctx, "echo two > d/kept; rm -f link; echo x > later"); err != nil {
		return err
	}
	if err := p.again(ctx, "snapshots", map[string]any{"id": "broken"}); err != nil {
		return err
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": p.snapshotID("kept")}); err != nil {
		return err
	}
	return p.whole(ctx)
}

// branches makes a branch from a snapshot and one from the present state, and checks that
// they are independent.
func branches(ctx context.Context, p *Play) error {
	if err := snapshots(ctx, p); err != nil {
		return err
	}
	for _, at := range []dormouse.SnapshotID{p.snapshotID("kept"), "", p.snapshotID("kept")} {
		if err := p.branch(ctx, at); err != nil {
			return err
		}
	}
	last := len(p.branched) - 1
	gone := p.branched[last]
	p.branched = p.branched[:last]
	if err := gone.Delete(ctx); err != nil {
		return err
	}
	if err := p.forget(ctx, "kept"); err != nil {
		return err
	}
	return p.wholeBranches(ctx)
}

// branch makes a branch from a snapshot, or from the present state. A request that is
// repeated after a crash may make two, and both are fine.
func (p *Play) branch(ctx context.Context, at dormouse.SnapshotID) error {
	body := map[string]any{"snapshot": at}
	if at == "" {
		body = map[string]any{}
	}
	for {
		var made struct {
			Session dormouse.SessionID `json:"session"`
		}
		_, err := p.Once(ctx, http.MethodPost, p.Path("/branch"), body, &made)
		if rig.Again(err) {
			continue
		}
		if err == nil {
			p.branched = append(p.branched, &rig.Session{Client: p.Client, ID: made.Session})
		}
		return err
	}
}

// forgets deletes the snapshots before and after one that is restored.
func forgets(ctx context.Context, p *Play) error {
	if _, err := p.mustRun(ctx, "echo before > before"); err != nil {
		return err
	}
	if err := p.again(ctx, "snapshots", map[string]any{"id": "before"}); err != nil {
		return err
	}
	if _, err := p.mustRun(ctx, "rm -f before"); err != nil {
		return err
	}
	if err := snapshots(ctx, p); err != nil {
		return err
	}
	for _, name := range []string{"before", "broken", "broken"} {
		if err := p.forget(ctx, name); err != nil {
			return err
		}
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": p.snapshotID("kept")}); err != nil {
		return err
	}
	return p.whole(ctx)
}

// forget deletes a snapshot.
func (p *Play) forget(ctx context.Context, name string) error {
	return p.Repeat(ctx, http.MethodDelete, p.Path("/snapshots/"+string(p.snapshotID(name))), nil, nil)
}

// long makes a chain that is long enough for compaction, and restores from it.
func long(ctx context.Context, p *Play) error {
	if err := snapshots(ctx, p); err != nil {
		return err
	}
	const steps = 16
	for n := range steps {
		if _, err := p.mustRun(ctx, fmt.Sprintf("echo %d > later; echo %d > later%d", n, n, n)); err != nil {
			return err
		}
		if err := p.again(ctx, "snapshots", map[string]any{"id": fmt.Sprint("later", n)}); err != nil {
			return err
		}
	}
	if _, err := p.mustRun(ctx, "rm -f later*"); err != nil {
		return err
	}
	if err := p.again(ctx, "snapshots", map[string]any{"id": "last"}); err != nil {
		return err
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": p.snapshotID("later3")}); err != nil {
		return err
	}
	result, err := p.mustRun(ctx, "cat d/kept later; ls")
	if err != nil {
		return err
	}
	if want := "one\n3\nd\nlater\nlater0\nlater1\nlater2\nlater3\nlink\n"; result.Output != want {
		return fmt.Errorf("restored from a long chain and found %q, not %q", result.Output, want)
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": p.snapshotID("last")}); err != nil {
		return err
	}
	return p.whole(ctx)
}

// collects makes the server collect unreferenced layers when there are many: of deleted
// snapshots, of a deleted session, and of one that was never created.
func collects(ctx context.Context, p *Play) error {
	if err := branches(ctx, p); err != nil {
		return err
	}
	if err := p.forget(ctx, "broken"); err != nil {
		return err
	}
	if err := p.Keeper.Halt(ctx); err != nil {
		return err
	}
	if err := errors.Join(p.Keeper.LeaveUse("sesn_00000000000000000000000000"), p.Keeper.Age()); err != nil {
		return err
	}
	p.Keeper.Resume()
	return p.Collected(ctx)
}

// Collected waits until all unreferenced layers are removed.
func (p *Play) Collected(ctx context.Context) error {
	for {
		named, err := p.Named(ctx)
		if err != nil {
			return err
		}
		left, err := p.Keeper.StrayLayers(named)
		if err != nil || len(left) == 0 {
			return err
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%v are not referenced: %w", left, err)
		}
	}
}

// turns reverts the turn that broke the workspace.
func turns(ctx context.Context, p *Play) error {
	for i, command := range []string{"mkdir -p d; echo one > d/kept; ln -sf d/kept link", "rm -rf d link; echo x > later"} {
		if err := p.Prompt(ctx, fmt.Sprint("p", i), p.Script(rig.Bash(command), rig.Say("so it is"))); err != nil {
			return err
		}
		if err := p.Rest(ctx, "continue"); err != nil {
			return err
		}
		if i == 0 && p.whole(ctx) != nil {
			return nil //nolint:nilerr // it is unknown whether the command ran: there is nothing to go back to
		}
	}
	broke := dormouse.PromptID(p.ID, "p1")
	err := p.again(ctx, "revert", map[string]any{"prompt": broke})
	if rig.Refused(err) != nil {
		// It may have been reverted before the answer was lost; and a crash may have
		// left the first turn without a snapshot.
		return nil //nolint:nilerr // that is no fault
	}
	if err != nil {
		return err
	}
	return p.whole(ctx)
}

// snapshotID is the id of a snapshot that was asked for under a client's id.
func (p *Play) snapshotID(name string) dormouse.SnapshotID {
	return dormouse.SnapshotID(dormouse.DeriveID(dormouse.SnapshotPrefix, string(p.ID), "client", name))
}

// again repeats an idempotent command until there is an answer.
func (p *Play) again(ctx context.Context, what string, body any) error {
	for {
		if err := p.Command(ctx, what, body); !rig.Again(err) {
			return err
		}
	}
}

// wholeFiles is what the snapshot holds, and lookWhole prints it.
const (
	lookWhole  = "cat d/kept; readlink link; ls"
	wholeFiles = "one\nd/kept\nd\nlink\n"
)

// whole checks that the files are those of the snapshot.
func (p *Play) whole(ctx context.Context) error {
	result, err := p.mustRun(ctx, lookWhole)
	if err != nil {
		return err
	}
	if result.Output != wholeFiles {
		return fmt.Errorf("went back to a snapshot and found %q, not %q", result.Output, wholeFiles)
	}
	return nil
}

// wholeBranches looks whether the branches have the files, too.
func (p *Play) wholeBranches(ctx context.Context) error {
	for _, b := range p.branched {
		result, err := rig.Exec{Unknown: true}, error(nil)
		for range 5 {
			if p.nonce++; result.Ran() || err != nil {
				break
			}
			result, err = b.Ask(ctx, rig.Asked{ClientID: p.lastNonce(), Command: lookWhole})
		}
		if err == nil && result.Output != wholeFiles {
			err = fmt.Errorf("branched from a snapshot and found %q, not %q", result.Output, wholeFiles)
		}
		if err != nil {
			return err
		}
	}
	return p.whole(ctx)
}
