package play

import (
	"context"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Run has a command run to its end, under one id after the other.
func (p *Play) Run(ctx context.Context, command string) (rig.Exec, error) {
	return p.mustRun(ctx, command)
}

// Wake has the sandbox started, if it is not there.
func (p *Play) Wake(ctx context.Context) error {
	return ignoreConflict(p.Insist(ctx, "wake", nil, func(s rig.Shown) bool { return s.Sandbox.Phase != "cold" }))
}

// Hibernate asks for the sandbox to go to sleep.
func (p *Play) Hibernate(ctx context.Context) error {
	return ignoreConflict(p.Insist(ctx, "hibernate", nil, func(s rig.Shown) bool { return s.Sandbox.Phase != "active" }))
}

// Asleep has the sandbox go to sleep, and returns once it has.
func (p *Play) Asleep(ctx context.Context) error {
	for {
		shown, err := p.Idle(ctx)
		if err != nil || shown.Sandbox.Phase == "cold" {
			return err
		}
		if err := p.Hibernate(ctx); err != nil {
			return err
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("session is %s, sandbox %s: %w", shown.Phase, shown.Sandbox.Phase, err)
		}
	}
}

// Family lists the sessions that descend from this one, as far as they are known.
func (p *Play) Family() []*Play {
	all := p.members()
	if p.gone.IsZero() {
		all = all[1:]
	}
	return all
}

// Leave stops following the session and its descendants until Return.
func (p *Play) Leave() {
	for _, q := range append(p.Family(), p) {
		q.Follower.Close()
	}
}

// Return follows them again from where they were left.
func (p *Play) Return() {
	for _, q := range append(p.Family(), p) {
		q.Follower.Resume(p.life)
	}
}
