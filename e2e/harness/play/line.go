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

// lineKinds are about going back to what a workspace was like.
func lineKinds() []Kind {
	kinds := []Kind{
		{Name: "line", Create: warm(), Play: line, Look: (*Play).whole},
		{Name: "line-asleep", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := line(ctx, p); err != nil {
				return err
			}
			cold := func(s rig.Shown) bool { return s.Sandbox.Phase != "active" }
			if err := ignoreConflict(p.Insist(ctx, "hibernate", nil, cold)); err != nil {
				return err
			}
			return p.whole(ctx)
		}, Look: (*Play).whole},
		{Name: "line-turns", Create: warm(), Play: turns},
		{Name: "line-first", Create: warm(), Play: first, Look: (*Play).whole},
		{Name: "line-branch", Create: warm(), Play: branches, Look: (*Play).wholeBranches},
		{Name: "line-forget", Create: warm(), Play: forgets, Look: (*Play).whole},
		{Name: "line-long", Create: warm(), Play: long, Look: (*Play).whole},
		{Name: "line-collect", Create: warm(), Play: collects, Look: (*Play).wholeBranches, Kills: true},
		{Name: "line-calls", Create: map[string]any{"environment": map[string]any{"snapshots": "call"}}, Play: calls},
		{Name: "line-image", Create: warm(), Play: image, Look: (*Play).whole},
	}
	for i := range kinds {
		kinds[i].Env, kinds[i].Collects = []string{"DORMOUSE_COLLECT_EVERY=100ms"}, true
	}
	return kinds
}

// line keeps a workspace, breaks it and goes back. What somebody was told was kept is
// there again once they are told so.
func line(ctx context.Context, p *Play) error {
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
	if err := p.again(ctx, "restore", map[string]any{"snapshot": p.point("kept")}); err != nil {
		return err
	}
	return p.whole(ctx)
}

// branches goes on elsewhere from a point and from the present, and what becomes of
// the one does not become of the others.
func branches(ctx context.Context, p *Play) error {
	if err := line(ctx, p); err != nil {
		return err
	}
	for _, at := range []dormouse.SnapshotID{p.point("kept"), "", p.point("kept")} {
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

// branch makes a session that goes on from a point, or from the present. Asked again
// after a crash there may be two, and both are well.
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

// forgets deletes the points around one that is gone back to.
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
	if err := line(ctx, p); err != nil {
		return err
	}
	for _, name := range []string{"before", "broken", "broken"} {
		if err := p.forget(ctx, name); err != nil {
			return err
		}
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": p.point("kept")}); err != nil {
		return err
	}
	return p.whole(ctx)
}

// forget deletes a point.
func (p *Play) forget(ctx context.Context, name string) error {
	return p.Repeat(ctx, http.MethodDelete, p.Path("/snapshots/"+string(p.point(name))), nil, nil)
}

// long makes a line that is worth being made shorter, and goes back on it.
func long(ctx context.Context, p *Play) error {
	if err := line(ctx, p); err != nil {
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
	if err := p.again(ctx, "restore", map[string]any{"snapshot": p.point("later3")}); err != nil {
		return err
	}
	told, err := p.mustRun(ctx, "cat d/kept later; ls")
	if err != nil {
		return err
	}
	if want := "one\n3\nd\nlater\nlater0\nlater1\nlater2\nlater3\nlink\n"; told.Output != want {
		return fmt.Errorf("went back on a long line and found %q, not %q", told.Output, want)
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": p.point("last")}); err != nil {
		return err
	}
	return p.whole(ctx)
}

// collects has the server look for what nobody needs when much of that is there: of
// points that were deleted, of a session that is gone, and of one that never came to
// be.
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

// Collected waits until nothing is there that nobody needs.
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
			return fmt.Errorf("%v are needed by nobody: %w", left, err)
		}
	}
}

// turns goes back to before the turn that broke the workspace.
func turns(ctx context.Context, p *Play) error {
	for i, command := range []string{"mkdir -p d; echo one > d/kept; ln -sf d/kept link", "rm -rf d link; echo x > later"} {
		if err := p.Prompt(ctx, fmt.Sprint("p", i), p.Script(rig.Bash(command), rig.Say("so it is"))); err != nil {
			return err
		}
		if err := p.Rest(ctx, "continue"); err != nil {
			return err
		}
		if i == 0 && p.whole(ctx) != nil {
			return nil //nolint:nilerr // nobody knows whether the command ran: there is nothing to go back to
		}
	}
	broke := dormouse.PromptID(p.ID, "p1")
	err := p.again(ctx, "revert", map[string]any{"prompt": broke})
	if rig.Refused(err) != nil {
		// It may have been reverted before the answer was lost; and a crash may have
		// left the first turn without a point.
		return nil //nolint:nilerr // that is no fault
	}
	if err != nil {
		return err
	}
	return p.whole(ctx)
}

// point is the id of a snapshot that was asked for by a name.
func (p *Play) point(name string) dormouse.SnapshotID {
	return dormouse.SnapshotID(dormouse.DeriveID(dormouse.SnapshotPrefix, string(p.ID), "client", name))
}

// again asks for what is the same twice, until there is an answer.
func (p *Play) again(ctx context.Context, what string, body any) error {
	for {
		if err := p.Command(ctx, what, body); !rig.Again(err) {
			return err
		}
	}
}

// wholeFiles is what is kept, and lookWhole shows it.
const (
	lookWhole  = "cat d/kept; readlink link; ls"
	wholeFiles = "one\nd/kept\nd\nlink\n"
)

// whole looks whether the files are those that were kept.
func (p *Play) whole(ctx context.Context) error {
	told, err := p.mustRun(ctx, lookWhole)
	if err != nil {
		return err
	}
	if told.Output != wholeFiles {
		return fmt.Errorf("went back to a snapshot and found %q, not %q", told.Output, wholeFiles)
	}
	return nil
}

// wholeBranches looks whether the branches have the files, too.
func (p *Play) wholeBranches(ctx context.Context) error {
	for _, b := range p.branched {
		told, err := rig.Exec{Unknown: true}, error(nil)
		for range 5 {
			if p.nonce++; told.Ran() || err != nil {
				break
			}
			told, err = b.Ask(ctx, rig.Asked{ClientID: p.lastNonce(), Command: lookWhole})
		}
		if err == nil && told.Output != wholeFiles {
			err = fmt.Errorf("branched from a snapshot and found %q, not %q", told.Output, wholeFiles)
		}
		if err != nil {
			return err
		}
	}
	return p.whole(ctx)
}
