package inside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

// reapEvery is how long zombies are left to gather before they are reaped.
const reapEvery = time.Second

// adoptOrphans makes whatever loses its parent a child of this process, so that
// nothing the runner started can leave its tree, and reaps what ends.
func (r *Runner) adoptOrphans(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	r.running.Go(func() {
		defer signal.Stop(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-ended:
			}
			_ = sleep.For(ctx, reapEvery)
			if err := r.reap(); err != nil {
				r.log.WarnContext(ctx, "orphans not reaped", "error", err)
			}
		}
	})
	return nil
}

// reap waits for the dead children that nobody else waits for. Waiting for just
// any child would steal the exit code of a command.
func (r *Runner) reap() error {
	var dead unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &dead, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err == nil && dead.Signo == 0 || errors.Is(err, unix.ECHILD) {
		return nil // nobody is dead, as nearly always: no need to look at every process
	}
	all, err := proctree.List()
	if err != nil {
		return err
	}
	self := os.Getpid()
	for _, p := range all {
		if p.Parent != self || !p.Zombie {
			continue
		}
		r.procMu.Lock()
		if !r.owned[p.PID] {
			_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
		}
		r.procMu.Unlock()
	}
	return nil
}
