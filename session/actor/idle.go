package actor

import (
	"context"
	"time"

	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
)

const (
	// lookWithin bounds how long a sandbox may take to say what goes on in it.
	lookWithin = 5 * time.Second
	// lookFor is how long it is watched, and busyCPU what it may use meanwhile and
	// still count as idle.
	lookFor = time.Second
	busyCPU = 100 * time.Millisecond
)

// sleep puts a sandbox to sleep that nobody has used for long enough, unless
// something goes on in it all the same.
func (a *Actor) sleep(ctx context.Context) error {
	if a.visits.Load() > 0 {
		return a.own(ctx, law.Tick{Stirs: "somebody is in it"})
	}
	if a.box.busy {
		return nil // whoever has it reports
	}
	if a.box.live == nil && !a.looks {
		a.looks = true // the sandbox is attached to, or found dead
		return a.reconcileSandbox(ctx, law.Want(a.state))
	}
	a.looks = false
	machine, ok := a.box.live.(sandbox.Machine)
	if !ok {
		return a.own(ctx, law.Tick{})
	}
	since := a.deps.Clock().Add(-a.state.IdleTimeout())
	if time.Unix(0, a.left.Load()).After(since) {
		return a.own(ctx, law.Tick{Stirs: "somebody was in it"})
	}
	a.work(ctx, lookWithin+lookFor, func(ctx context.Context) func(context.Context) error {
		tick := look(ctx, machine, since)
		return func(ctx context.Context) error {
			if w := law.Want(a.state); w.Sleep.IsZero() || w.Sleep.After(a.deps.Clock()) {
				return nil // somebody came
			}
			return a.own(ctx, tick)
		}
	})
	return nil
}

// look finds out what goes on in a sandbox. One that does not say is idle.
func look(ctx context.Context, m sandbox.Machine, since time.Time) law.Tick {
	before, err := m.Usage(ctx)
	if err != nil {
		return law.Tick{}
	}
	// Who comes from outside is known here; of the rest there is only the runner's word.
	if before.Active.After(since) {
		return law.Tick{Stirs: "a terminal or a port of it is in use", Bounded: true}
	}
	if why := stirs(before); why != "" {
		return law.Tick{Stirs: why, Bounded: true}
	}
	select {
	case <-ctx.Done():
		return law.Tick{}
	case <-time.After(lookFor):
	}
	after, err := m.Usage(ctx)
	if err == nil && after.CPU-before.CPU > busyCPU {
		return law.Tick{Stirs: "its processes are busy", Bounded: true}
	}
	return law.Tick{}
}

// stirs says what is meant to go on without anybody.
func stirs(u runner.Usage) string {
	switch {
	case u.Tasks > 0:
		return "a background task runs"
	case u.Terminals > 0:
		return "a terminal is open"
	}
	return ""
}
