//go:build linux

package gvisor

import (
	"context"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/fencing"
)

// clear removes the workspaces before the one that a sandbox has, which may take
// a while. Whoever is cut off leaves the rest to the next start.
func (d *Driver) clear(ctx context.Context, v sessionDir, number uint64) {
	if number == 0 {
		return
	}
	ctx, over := fencing.Outlive(ctx)
	d.clearing.Go(func() {
		defer over()
		done, err := v.LockCleanup(ctx)
		if err != nil {
			d.log.WarnContext(ctx, "old workspaces not removed", "session", v.Session, "error", err)
			return
		}
		defer done()
		for _, old := range v.OldWorkspaces(number) {
			if ctx.Err() != nil {
				return // the lease is over, and the rest somebody else's
			}
			if err := beneath.At(old).Remove(); err != nil {
				d.log.WarnContext(ctx, "old workspace not removed", "session", v.Session, "error", err)
			}
		}
	})
}
