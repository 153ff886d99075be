package play

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// image exports a workspace, breaks it, and imports it again: as a snapshot of the session,
// and as a session of its own. Imports are idempotent.
func image(ctx context.Context, p *Play) error {
	if _, err := p.mustRun(ctx, "mkdir -p d; echo one > d/kept; ln -sf d/kept link"); err != nil {
		return err
	}
	if err := p.again(ctx, "snapshots", map[string]any{"id": "kept"}); err != nil {
		return err
	}
	var tar string
	if err := p.Get(ctx, p.Path("/snapshots/"+string(p.snapshotID("kept"))+"/export"), &tar); err != nil {
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
			return fmt.Errorf("imported twice, it is %v", made)
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
	var listed struct {
		Snapshots []struct {
			ID     dormouse.SnapshotID `json:"snapshot"`
			Reason string              `json:"reason"`
		} `json:"snapshots"`
	}
	if err := p.Get(ctx, p.Path("/snapshots"), &listed); err != nil {
		return err
	}
	var came []dormouse.SnapshotID
	for _, s := range listed.Snapshots {
		if s.Reason == dormouse.SnapshotImported {
			came = append(came, s.ID)
		}
	}
	if len(came) != 1 {
		return fmt.Errorf("imported are %v", came)
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": came[0]}); err != nil {
		return err
	}
	return p.whole(ctx)
}

// calls restores the snapshot between two calls of one turn.
func calls(ctx context.Context, p *Play) error {
	err := p.Prompt(ctx, "p0", p.Script(rig.Bash("mkdir -p d; echo one > d/kept; ln -sf d/kept link"), rig.Bash("rm -rf d link; echo x > later"), rig.Say("so it is")))
	if err != nil {
		return err
	}
	if err := p.Settle(ctx); err != nil {
		return err
	}
	var listed struct {
		Snapshots []struct {
			ID     dormouse.SnapshotID `json:"snapshot"`
			Reason string              `json:"reason"`
		} `json:"snapshots"`
	}
	if err := p.Get(ctx, p.Path("/snapshots"), &listed); err != nil {
		return err
	}
	n := len(listed.Snapshots)
	if n == 0 || listed.Snapshots[n-1].Reason != dormouse.SnapshotOfCall {
		return fmt.Errorf("there are %v", listed.Snapshots)
	}
	if err := p.again(ctx, "restore", map[string]any{"snapshot": listed.Snapshots[n-1].ID}); err != nil {
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
		return nil // it is unknown whether the first command ran
	}
	return broken
}
