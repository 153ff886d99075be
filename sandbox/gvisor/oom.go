//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
)

const (
	// killWithin bounds how long a runner may take to kill processes, and askedWithin
	// for how long it is asked again, after askAgain, if it does not answer.
	killWithin  = 10 * time.Second
	askedWithin = time.Minute
	askAgain    = 50 * time.Millisecond
	// freeWithin is how long the memory of all killed processes may take to be freed.
	freeWithin = 20 * time.Second
	// maxRounds is how often in a row processes are killed before it is clear that
	// something else holds the memory.
	maxRounds = 64
)

// killOverLimit has processes killed while the sandbox is above its memory limit. If that
// does not help, the sandbox is killed.
func (l *live) killOverLimit(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.memory.Exceeded():
		}
		err := l.killLargest(ctx)
		switch {
		case err == nil, ctx.Err() != nil, l.kernel.proc.Ended():
		case errors.Is(err, runner.ErrQuiesced), errors.Is(err, runner.ErrClosed):
			// It is being frozen, and its memory soon freed.
		default:
			l.driver.log.ErrorContext(ctx, "sandbox ended for lack of memory", "session", l.handle.Session, "generation", l.handle.Generation, "error", err)
			l.kernel.proc.Signal(unix.SIGKILL)
			return
		}
	}
}

// killLargest has the largest processes killed until the sandbox is below its limit.
func (l *live) killLargest(ctx context.Context) error {
	began, end := time.Now(), time.Time{}
	for round := range maxRounds {
		over, err := l.memory.Excess(ctx)
		if err != nil {
			return err
		}
		l.overLimit.Store(over > 0)
		if over == 0 {
			return nil
		}
		asking, cancel := context.WithTimeoutCause(ctx, killWithin, runner.ErrUnreachable)
		// If it was not enough once, there are many small ones.
		victims, err := l.Relieve(asking, over+l.memory.Limit()/8<<min(round, 2))
		cancel()
		if errors.Is(err, runner.ErrUnreachable) && time.Since(began) < askedWithin && sleep.For(ctx, askAgain) == nil {
			continue // processes that fill memory take CPU, too; it may have killed some by now
		}
		if err != nil {
			return err
		}
		l.driver.log.InfoContext(ctx, "processes killed for lack of memory", "session", l.handle.Session, "generation", l.handle.Generation,
			"count", len(victims), "pid", victims[0].PID, "command", victims[0].Command, "rss", victims[0].RSS)
		l.reportKills(victims)
		var killed int64
		for _, v := range victims { // the runner may report any size
			killed += min(max(v.RSS, 0), l.memory.Limit()+over)
		}
		if end.IsZero() {
			end = time.Now().Add(freeWithin)
		}
		l.memory.AwaitFreed(ctx, over, killed, end)
	}
	return errors.New("what was killed did not hold the memory")
}

// reportKills says which processes were killed, if no op does.
func (l *live) reportKills(victims []runner.Victim) {
	victims = slices.DeleteFunc(victims, func(v runner.Victim) bool { return v.Reported })
	if len(victims) == 0 {
		return
	}
	words := victims[0].String()
	if more := len(victims) - 1; more > 0 {
		words += fmt.Sprintf(", and %d more", more)
	}
	select {
	case l.oomKills <- words:
	default: // one is not read yet
	}
}

// outOfMemory says that a sandbox died because of its memory limit, if that is known: by
// the kernel that killed it, or because it was above its limit to the last.
func (d *Driver) outOfMemory(b box, m boxSpec, known bool) error {
	if !known {
		if kills, err := d.cpu.Group(b.id).OOMKills(); err != nil || kills == 0 {
			return nil //nolint:nilerr // it is not known, and not needed for anything else
		}
	}
	return fmt.Errorf("it needed more than the %d MiB of memory that it may have", m.Limits.Memory>>20)
}
