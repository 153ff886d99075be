package play

import (
	"context"
	"syscall"

	"github.com/dormouse-run/dormouse/e2e/rig"
)

// fleetKinds are about servers that share a store.
func fleetKinds() []Kind {
	run := func(p *Play) string { return p.Script(rig.Bash(p.Marks("0.05")), rig.Say("it ran")) }
	word := func(p *Play) string { return p.Script(rig.Say("a word")) }
	return []Kind{
		// The one that dies is only asked; the session is the other's.
		{Name: "asked", Servers: 2, Play: func(ctx context.Context, p *Play) error {
			defer p.Fleet.Steer(nil)
			p.Fleet.Steer(p.Fleet.Keepers[1])
			if err := p.Prompt(ctx, "p0", run(p)); err != nil {
				return err
			}
			p.Fleet.Steer(p.Fleet.Keepers[0])
			if err := p.Prompt(ctx, "p1", word(p)); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			return p.Interrupt(ctx, false)
		}},
		// The one that dies has the session; the other is asked.
		{Name: "owner", Servers: 2, Play: func(ctx context.Context, p *Play) error {
			defer p.Fleet.Steer(nil)
			p.Fleet.Steer(p.Fleet.Keepers[0])
			if err := p.Prompt(ctx, "p0", run(p)); err != nil {
				return err
			}
			p.Fleet.Steer(p.Fleet.Keepers[1])
			for _, id := range []string{"p1", "p2"} {
				if err := p.Prompt(ctx, id, word(p)); err != nil {
					return err
				}
			}
			return nil
		}},
		// The one that dies was frozen for longer than its lease, and has just come
		// back.
		{Name: "frozen", Servers: 2, Freezes: true, Create: warm(), Play: func(ctx context.Context, p *Play) error {
			defer p.Fleet.Steer(nil)
			p.Fleet.Steer(p.Fleet.Keepers[0])
			if err := p.Prompt(ctx, "p0", p.Script(rig.Bash(p.Marks("0.3")), rig.Say("it went on"))); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			l, err := p.Keeper.Live(ctx)
			if err != nil {
				return err
			}
			p.Fleet.Steer(p.Fleet.Keepers[1])
			l.Signal(syscall.SIGSTOP)
			err = rig.Pause(ctx, p.Keeper.Thaw)
			l.Signal(syscall.SIGCONT)
			if err != nil {
				return err
			}
			if err := rig.Pause(ctx, p.Keeper.Store.Lease); err != nil { // to notice, and to come back
				return err
			}
			p.Fleet.Steer(p.Fleet.Keepers[0])
			return p.Prompt(ctx, "p1", word(p))
		}},
	}
}
