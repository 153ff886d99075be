package actor

import (
	"context"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
)

const (
	// probeTimeout bounds how long a sandbox may take to say what goes on in it.
	probeTimeout = 5 * time.Second
	// probeFor is how long it is watched, and busyCPU what it may use meanwhile and
	// still count as idle.
	probeFor = time.Second
	busyCPU  = 100 * time.Millisecond
)

// hibernateIdle hibernates a sandbox that was not used for long enough, unless
// processes in it are busy.
func (a *Actor) hibernateIdle(ctx context.Context) error {
	if a.visits.Load() > 0 {
		return a.commitOwn(ctx, law.Tick{Busy: "somebody is in it"})
	}
	if a.sandbox.busy {
		return nil // the goroutine that works on it reports
	}
	if a.sandbox.live == nil && !a.checkIdle {
		a.checkIdle = true // the sandbox is attached to, or found dead
		return a.reconcileSandbox(ctx, law.Want(a.state))
	}
	a.checkIdle = false
	machine, ok := a.sandbox.live.(sandbox.Machine)
	if !ok {
		return a.commitOwn(ctx, law.Tick{})
	}
	since := a.deps.Clock().Add(-a.state.IdleTimeout())
	if time.Unix(0, a.lastLeft.Load()).After(since) {
		return a.commitOwn(ctx, law.Tick{Busy: "somebody was in it"})
	}
	a.work(ctx, probeTimeout+probeFor, func(ctx context.Context) func(context.Context) error {
		tick := probe(ctx, machine, since)
		return func(ctx context.Context) error {
			if w := law.Want(a.state); w.Sleep.IsZero() || w.Sleep.After(a.deps.Clock()) {
				return nil // it was used meanwhile
			}
			return a.commitOwn(ctx, tick)
		}
	})
	return nil
}

// probe reports whether a sandbox is busy. One that does not answer counts as idle.
func probe(ctx context.Context, m sandbox.Machine, since time.Time) law.Tick {
	before, err := m.Usage(ctx)
	if err != nil {
		return law.Tick{}
	}
	// Visitors are known here; the rest is known only from the runner.
	if before.Active.After(since) {
		return law.Tick{Busy: "a terminal or a port of it is in use", Bounded: true}
	}
	if why := background(before); why != "" {
		return law.Tick{Busy: why, Bounded: true}
	}
	if sleep.For(ctx, probeFor) != nil {
		return law.Tick{}
	}
	after, err := m.Usage(ctx)
	if err == nil && after.CPU-before.CPU > busyCPU {
		return law.Tick{Busy: "its processes are busy", Bounded: true}
	}
	return law.Tick{}
}

// background says what is meant to run while the sandbox is not in use.
func background(u runner.Usage) string {
	switch {
	case u.Tasks > 0:
		return "a background task runs"
	case u.Terminals > 0:
		return "a terminal is open"
	}
	return ""
}
