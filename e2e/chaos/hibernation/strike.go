package hibernation

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// moves says that a sandbox is about to hibernate, or to wake. It does not
// block if that is not received.
func (n *trial) moves(what string) {
	select {
	case n.moving <- what:
	default:
	}
}

// strikes kills servers and sandboxes at instants that follow from the seed.
func (n *trial) strikes(ctx context.Context) {
	for sleep.For(ctx, time.Duration(1500+n.rand.IntN(6000))*time.Millisecond) == nil {
		n.strike(ctx, n.rand.IntN(20), time.Duration(n.rand.IntN(300))*time.Millisecond)
	}
	// The last one struck comes back before anything is judged.
	if _, err := n.keeper.Live(context.WithoutCancel(ctx)); err != nil {
		n.add(oracle.Stuck, "the server is not there: %v", err)
	}
}

func (n *trial) strike(ctx context.Context, how int, wait time.Duration) {
	switch {
	case how < 3:
		n.await(ctx, "hibernate", wait)
	case how < 6:
		n.await(ctx, "wake", wait)
	case how < 8:
		n.hit(rig.Runner)
		return
	case how < 10:
		n.hit(rig.Gofer)
		return
	case how == 10: // both at once
		n.hit(rig.Both)
	case how == 11: // stopped, and killed while it stops
		if l, err := n.keeper.Live(ctx); err == nil {
			l.Signal(syscall.SIGTERM)
			_ = sleep.For(ctx, wait)
		}
	case how == 12: // killed once more while it recovers
		n.kill(ctx)
		_ = sleep.For(ctx, wait)
	}
	n.kill(ctx)
}

// await waits until a sandbox is about to move, and a moment longer.
func (n *trial) await(ctx context.Context, what string, moment time.Duration) {
	const most = 3 * time.Second
	enough := time.After(most)
	for {
		select {
		case is := <-n.moving:
			if is == what {
				_ = sleep.For(ctx, moment)
				return
			}
		case <-enough:
			return
		case <-ctx.Done():
			return
		}
	}
}

// kill is kill -9 for the server, which is started again at once.
func (n *trial) kill(ctx context.Context) {
	l, err := n.keeper.Live(ctx)
	if err != nil {
		return
	}
	l.Kill()
	n.count(func(s *Summary) { s.Kills++ })
	if n.Verbose {
		fmt.Fprintf(n.Out, "naps: the server was killed\n")
	}
}

// hit is kill -9 for a part of one sandbox.
func (n *trial) hit(p rig.Part) {
	if n.keeper.KillKernel(p, n.rand.IntN) {
		n.count(func(s *Summary) { s.Struck++ })
	}
}

// watchLoops looks whether the files of a session are ever mounted twice: two
// file systems that write to one volume.
func (n *trial) watchLoops(ctx context.Context) {
	for sleep.For(ctx, 20*time.Millisecond) == nil {
		loops := n.keeper.Loops()
		slices.Sort(loops)
		for i := 1; i < len(loops); i++ {
			if loops[i] == loops[i-1] {
				n.add(oracle.Double, "two devices show %s", loops[i])
				_ = sleep.For(ctx, time.Second)
			}
		}
	}
}
