package matrix

import (
	"context"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// RunFreezes freezes servers in the named cases, one after the other: how long everything
// takes is what they are about. Whether a server comes to where it is told to freeze
// depends a little on timing, so one that did not is told again.
func RunFreezes(ctx context.Context, c Config, cases []Case) (Summary, error) {
	const tries = 3
	c.Store, c.Parallel, c.Cases = "postgres", 1, cases
	sum, err := Run(ctx, c)
	for n := 1; n < tries && err == nil && len(sum.Unreached) > 0; n++ {
		var again Summary
		c.Cases, sum.Unreached = sum.Unreached, nil
		again, err = Run(ctx, c)
		sum.Cases, sum.Failed, sum.Unreached = sum.Cases+again.Cases, append(sum.Failed, again.Failed...), again.Unreached
		for zero, n := range again.Counts {
			sum.Counts[zero] += n
		}
	}
	return sum, err
}

// held is a freeze that outlasts its case: unless another server ends the one that hangs,
// what that one holds is held for good.
const held = time.Hour

// Freezes are the named cases in which a server hangs where it works on a sandbox, beside
// one that does not: before a call, in it, with the session locked, and after it. They
// last from a tenth of a second to twice the lease, and in some for good. Begin picks
// those whose names begin with it.
func Freezes(sandbox, begin string) []Case {
	type freeze struct {
		name, kind string
		point      crash.Point
		visit      int
		lasts      time.Duration
	}
	const instant = lease / 10
	all := []freeze{
		{"stop-called", "hibernate", crash.SandboxStopping, 1, instant},
		{"stop-locked-instant", "hibernate", crash.SandboxLocked, 1, instant},
		{"stop-locked-short", "hibernate", crash.SandboxLocked, 1, lease / 2},
		{"stop-locked-lease", "hibernate", crash.SandboxLocked, 1, lease},
		{"stop-locked-long", "hibernate", crash.SandboxLocked, 1, 2 * lease},
		{"stop-held", "hibernate", crash.SandboxLocked, 1, held},
		{"stop-done", "hibernate", crash.SandboxStopped, 1, lease * 3 / 2},
		{"capture-called", "snapshot", crash.SnapshotCapturing, 1, lease * 3 / 2},
		{"capture-locked-instant", "snapshot", crash.CaptureNoted, 1, instant},
		{"capture-locked-long", "snapshot", crash.CaptureNoted, 1, 2 * lease},
		{"capture-held", "snapshot", crash.CaptureNoted, 2, held},
		{"capture-done", "snapshot", crash.SnapshotCaptured, 1, lease},
		{"capture-recording", "snapshot", crash.SnapshotRecording, 2, 2 * lease},
		{"remove-called", "delete", crash.DeleteClearing, 1, 2 * lease},
		{"remove-locked-short", "delete", crash.SandboxLocked, 1, lease / 2},
		{"remove-locked-long", "delete", crash.SandboxLocked, 1, 2 * lease},
		{"remove-held", "delete", crash.SandboxLocked, 1, held},
		{"remove-done", "delete", crash.DeleteCleared, 1, lease * 3 / 2},
		{"op-sent", "exec", crash.OpSent, 2, 2 * lease},
		{"lease-claimed", "exec", crash.LeaseClaimed, 1, held},
	}
	if sandbox == rig.GVisor {
		all = []freeze{
			{"freeze-called", "counter", crash.SandboxStopping, 1, lease * 3 / 2},
			{"freeze-locked", "counter", crash.SandboxLocked, 1, held},
			{"freeze-paused", "counter", crash.SandboxPaused, 1, held},
			{"freeze-saved", "counter", crash.SandboxFrozen, 1, 2 * lease},
			{"capture-paused", "snapshot", crash.CapturePaused, 1, held},
			{"capture-copied", "snapshot", crash.CaptureCopied, 1, 2 * lease},
			{"remove-held", "delete", crash.SandboxLocked, 1, held},
			{"clear-held", "delete", crash.SandboxClearing, 1, held},
		}
	}
	var cases []Case
	for _, f := range all {
		k, ok := play.Named(f.kind)
		if !ok || !strings.HasPrefix(f.name, begin) {
			continue
		}
		cases = append(cases, Case{
			Name: f.name, Kind: k.Beside(), Frozen: f.lasts,
			Arms: []rig.Arm{{Point: f.point, Visit: f.visit, Death: crash.Freeze}},
		})
	}
	return cases
}
