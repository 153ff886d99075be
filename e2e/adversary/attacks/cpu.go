package attacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

// How a neighbour is timed: in rounds beside nothing and beside busy sandboxes by
// turns, so that whatever else the machine does is in both.
const (
	rounds   = 12
	perRound = 20
	batches  = 3
	// unnoticed is how long it takes until the sandboxes that were told to be busy have
	// no waiting client any more.
	unnoticed = 300 * time.Millisecond
	// tooSmall is a delay that a person does not notice.
	tooSmall = 20 * time.Millisecond
	// calmWithin bounds, over all rounds, the wait until the machine is idle.
	calmWithin = 30 * time.Second
)

// cpuLoop keeps every CPU busy and compares the latency of a neighbour's commands with
// and without that.
func cpuLoop(ctx context.Context, w *World) (string, error) {
	busy := []*Session{w.Me}
	for range runtime.NumCPU() - 1 {
		s, err := w.session(ctx, "busy")
		if err != nil {
			return "", err
		}
		defer s.remove(context.WithoutCancel(ctx))
		busy = append(busy, s)
	}
	signal := func(name string) error {
		for _, s := range busy {
			if d, err := s.Do(ctx, "kill -"+name+" $(cat loops)"); err != nil || d.Exit != 0 {
				return errors.Join(fmt.Errorf("signal the loops: %+v", d), err)
			}
		}
		return nil
	}
	for _, s := range busy {
		if _, err := s.Do(ctx, "for i in 1 2 3 4; do (while :; do :; done) >/dev/null 2>&1 & echo $! >>loops; done"); err != nil {
			return "", err
		}
	}
	t := new(timing)
	calm, cancel := context.WithTimeout(ctx, calmWithin)
	defer cancel()
	for range batches {
		if err := t.more(ctx, calm, w.Neighbour, signal); err != nil {
			return "", err
		}
		if t.certain() {
			break
		}
	}
	if err := signal("STOP"); err != nil {
		return "", err
	}
	floor, err := slowing(ctx)
	if err != nil {
		return "", err
	}
	shown := fmt.Sprintf("%s; the machine slows its own programs %.1f times for loops that yield to everything", t, floor)
	switch {
	case t.busy.p99() > 2*max(t.quiet().p99(), tooSmall):
		return "", fmt.Errorf("a neighbour is slowed down: %s", shown)
	case !t.certain():
		return "", fmt.Errorf("the machine does too much else to tell: %s", shown)
	}
	return shown, nil
}

// timing is how long a small command took. On the idle machine it is measured twice, and
// the difference is the noise of the machine.
type timing struct {
	once, again, busy times
}

// more adds a batch of rounds. Each begins when the machine is calm.
func (t *timing) more(ctx, calm context.Context, s *Session, signal func(string) error) error {
	for range rounds {
		if err := signal("STOP"); err != nil {
			return err
		}
		awaitCalm(calm)
		if err := errors.Join(t.once.take(ctx, s, perRound/2), t.again.take(ctx, s, perRound/2)); err != nil {
			return err
		}
		if err := errors.Join(signal("CONT"), sleep.For(ctx, unnoticed)); err != nil {
			return err
		}
		if err := t.busy.take(ctx, s, perRound); err != nil {
			return err
		}
	}
	return nil
}

func (t *timing) quiet() times { return slices.Concat(t.once, t.again) }

// certain reports whether the noise of the machine is too small to explain the
// difference.
func (t *timing) certain() bool {
	a, b := max(t.once.p99(), tooSmall), max(t.again.p99(), tooSmall)
	return max(a, b) <= 2*min(a, b)
}

func (t *timing) String() string {
	return fmt.Sprintf("p99 of %d: %s and %s beside nothing, %s beside %d busy loops; medians %s and %s", len(t.busy),
		t.once.p99(), t.again.p99(), t.busy.p99(), 4*runtime.NumCPU(), t.quiet().at(50), t.busy.at(50))
}

type times []time.Duration //nolint:recvcheck // only take changes it

// take adds how long a small command takes, n times.
func (t *times) take(ctx context.Context, s *Session, n int) error {
	for range n {
		began := time.Now()
		if d, err := s.Do(ctx, "true"); err != nil || d.Exit != 0 {
			return errors.Join(fmt.Errorf("time a command: %+v", d), err)
		}
		*t = append(*t, time.Since(began))
	}
	return nil
}

func (t times) p99() time.Duration { return t.at(99) }

// at is a percentile.
func (t times) at(percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(t))
	return sorted[(len(sorted)-1)*percent/100].Round(100 * time.Microsecond)
}

// awaitCalm returns once the CPUs are nearly idle, or when ctx ends.
func awaitCalm(ctx context.Context) {
	for before, err := idle(); err == nil; {
		began := time.Now()
		if sleep.For(ctx, 200*time.Millisecond) != nil {
			return
		}
		var after time.Duration
		if after, err = idle(); after-before > time.Since(began)*time.Duration(runtime.NumCPU())*4/5 {
			return
		}
		before = after
	}
}

// idle is how long the CPUs of the machine have been idle.
func idle() (time.Duration, error) {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	var up, idle float64
	_, err = fmt.Sscan(string(b), &up, &idle)
	return time.Duration(idle * float64(time.Second)), err
}
