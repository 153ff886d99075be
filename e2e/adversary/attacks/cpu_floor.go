package attacks

import (
	"context"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// slowing is how much slower, at the 99th percentile, a few small programs of this
// machine are beside as many loops of the lowest class there is: what the kernel under
// the sandboxes does by itself, to be read beside what they do.
func slowing(ctx context.Context) (float64, error) {
	var quiet, busy times
	if err := quiet.fork(ctx); err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	var loops []*exec.Cmd
	defer func() {
		stop()
		for _, l := range loops {
			_ = l.Wait() // it was killed
		}
	}()
	for range 4 * runtime.NumCPU() {
		l := exec.CommandContext(ctx, "/bin/sh", "-c", "while :; do :; done")
		if err := l.Start(); err != nil {
			return 0, err
		}
		loops = append(loops, l)
		if err := unix.SchedSetAttr(l.Process.Pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
			return 0, err
		}
	}
	err := busy.fork(ctx)
	return float64(busy.p99()) / float64(quiet.p99()), err
}

// fork adds how long it takes to run a few programs one after the other.
func (t *times) fork(ctx context.Context) error {
	for range rounds * perRound {
		began := time.Now()
		if err := exec.CommandContext(ctx, "/bin/sh", "-c", "/bin/true; /bin/true; /bin/true; /bin/true; /bin/true; /bin/true").Run(); err != nil {
			return err
		}
		*t = append(*t, time.Since(began))
	}
	return nil
}
