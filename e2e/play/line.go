package play

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/rig"
)

// lineKinds are about going back to what a workspace was like.
func lineKinds() []Kind {
	return []Kind{
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
		{Name: "line-calls", Create: map[string]any{"environment": map[string]any{"snapshots": "call"}}, Play: calls},
		{Name: "line-image", Create: warm(), Play: image, Look: (*Play).whole},
	}
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

// image carries a workspace out, breaks it, and brings it in again: as a snapshot of
// the session, and as a session of its own. Brought in twice it is there once.
func image(ctx context.Context, p *Play) error {
	if _, err := p.mustRun(ctx, "mkdir -p d; echo one > d/kept; ln -sf d/kept link"); err != nil {
		return err
	}
	if err := p.again(ctx, "snapshots", map[string]any{"id": "kept"}); err != nil {
		return err
	}
	var tar string
	if err := p.Get(ctx, p.Path("/snapshots/"+string(p.point("kept"))+"/export"), &tar); err != nil {
		return err
	}
	var made [2]struct {
		Session  dormouse.SessionID  `json:"session"`
		Snapshot dormouse.SnapshotID `json:"snapshot"`
	}
	for _, path := range []string{p.Path("/snapshots/import?id=i"), "/api/sessions/import?id=" + url.QueryEscape(p.Name)} {
		for i := range made {
			if err := p.Repeat(ctx, http.MethodPost, path, rig.Tar(tar), &made[i]); err != nil {
				return err
			}
		}
		if made[0] != made[1] {
			return fmt.Errorf("brought in twice, it is %v", made)
		}
		if made[0].Session == p.ID {
			continue
		}
		if err := p.Repeat(ctx, http.MethodDelete, "/api/sessions/"+string(made[0].Session), nil, nil); err != nil && !rig.Missing(err) {
			return err
		}
	}
	if _, err := p.mustRun(ctx, "rm -r d link; echo x > later"); err != nil {
		return err
	}
	var points struct {
		Snapshots []struct {
			ID     dormouse.SnapshotID `json:"snapshot"`
			Reason string              `json:"reason"`
		} `json:"snapshots"`
	}
	if err := p.Get(ctx, p.Path("/snapshots"), &points); err != nil {
		return err
	}
	var came []dormouse.SnapshotID
	for _, s := range points.Snapshots {
		if s.Reason == dormouse.SnapshotImported {
			came = append(came, s.ID)
		}
	}
	if len(came) != 1 {
		return fmt.Errorf("brought in are %v", came)
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": came[0]}); err != nil {
		return err
	}
	return p.whole(ctx)
}

// calls goes back to between two calls of one turn.
func calls(ctx context.Context, p *Play) error {
	err := p.Prompt(ctx, "p0", p.Script(rig.Bash("mkdir -p d; echo one > d/kept; ln -sf d/kept link"), rig.Bash("rm -rf d link; echo x > later"), rig.Say("so it is")))
	if err != nil {
		return err
	}
	if err := p.Settle(ctx); err != nil {
		return err
	}
	var points struct {
		Snapshots []struct {
			ID     dormouse.SnapshotID `json:"snapshot"`
			Reason string              `json:"reason"`
		} `json:"snapshots"`
	}
	if err := p.Get(ctx, p.Path("/snapshots"), &points); err != nil {
		return err
	}
	n := len(points.Snapshots)
	if n == 0 || points.Snapshots[n-1].Reason != dormouse.SnapshotOfCall {
		return fmt.Errorf("there are %v", points.Snapshots)
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": points.Snapshots[n-1].ID}); err != nil {
		return err
	}
	broken := p.whole(ctx)
	var ops struct {
		Ops []dormouse.OpRecord `json:"ops"`
	}
	if err := p.Get(ctx, p.Path("/ops?limit=100"), &ops); err != nil {
		return err
	}
	if slices.ContainsFunc(ops.Ops, func(o dormouse.OpRecord) bool { return o.Status == dormouse.OpLost }) {
		return nil // nobody knows whether the first command ran
	}
	return broken
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

// whole looks whether the files are those that were kept.
func (p *Play) whole(ctx context.Context) error {
	told, err := p.mustRun(ctx, "cat d/kept; readlink link; ls")
	if err != nil {
		return err
	}
	if want := "one\nd/kept\nd\nlink\n"; told.Output != want {
		return fmt.Errorf("went back to a snapshot and found %q, not %q", told.Output, want)
	}
	return nil
}
