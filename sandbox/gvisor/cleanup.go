//go:build linux

package gvisor

import (
	"context"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/fencing"
)

// removeOldWorkspaces removes the workspaces before the one that a sandbox has, which may
// take a while. What an interrupted call leaves is removed at the next start.
func (d *Driver) removeOldWorkspaces(ctx context.Context, v sessionDir, number uint64) {
	if number == 0 {
		return
	}
	ctx, over := fencing.Outlive(ctx)
	d.cleanups.Go(func() {
		defer over()
		done, err := v.LockCleanup(ctx)
		if err != nil {
			d.log.WarnContext(ctx, "old workspaces not removed", "session", v.Session, "error", err)
			return
		}
		defer done()
		for _, old := range v.OldWorkspaces(number) {
			if ctx.Err() != nil {
				return // the lease has ended, and another server does the rest
			}
			if err := beneath.At(old).Remove(); err != nil {
				d.log.WarnContext(ctx, "old workspace not removed", "session", v.Session, "error", err)
			}
		}
	})
}
