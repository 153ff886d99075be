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

// reapEvery is the least time between two reaps.
const reapEvery = time.Second

// adoptOrphans makes this process a subreaper, so that no descendant can leave its tree,
// and reaps orphans.
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

// reap waits for the zombies that are not commands of ours. Waiting for any child would
// steal the exit code of a command.
func (r *Runner) reap() error {
	var dead unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &dead, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err == nil && dead.Signo == 0 || errors.Is(err, unix.ECHILD) {
		return nil // the usual case: there is no zombie, so the processes need not be listed
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
