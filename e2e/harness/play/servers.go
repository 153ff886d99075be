package play

import (
	"context"
	"net/http"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// stale has a server freeze, if it is told to, with a prompt on its way to the
// store. Meanwhile the session changes hands without anything being written, so
// that only the epoch tells. The client then sends its prompt again.
func stale(ctx context.Context, p *Play) error {
	prompt := p.Script(rig.Say("a word"))
	_, err := p.Once(ctx, http.MethodPost, p.Path("/prompts"), map[string]any{"content": prompt, "id": "p0"}, nil)
	if err != nil && !rig.Again(err) {
		return err
	}
	if err := p.Repeat(ctx, http.MethodPatch, p.Path(""), map[string]any{"title": p.Name}, nil); err != nil {
		return err
	}
	for l, err := p.Keeper.Live(ctx); err == nil && l.Frozen(); {
		if err := sleep.For(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	if err := sleep.For(ctx, 200*time.Millisecond); err != nil { // for what was on its way
		return err
	}
	p.Fleet.Steer(p.Fleet.Keepers[1])
	return p.Prompt(ctx, "p0", prompt)
}

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
		// The one that dies is about to end the other, which hangs.
		{Name: "hangs", Servers: 2, Hangs: true, Create: warm(), Play: func(ctx context.Context, p *Play) error {
			defer p.Fleet.Steer(nil)
			p.Fleet.Steer(p.Fleet.Keepers[1])
			if err := p.Prompt(ctx, "p0", run(p)); err != nil {
				return err
			}
			l, err := p.Fleet.Keepers[1].Live(ctx)
			if err != nil {
				return err
			}
			p.Fleet.Steer(p.Fleet.Keepers[0])
			l.Signal(syscall.SIGSTOP)
			if err := p.Prompt(ctx, "p1", word(p)); err != nil {
				return err
			}
			select {
			case <-l.Done():
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}},
		{Name: "stale", Servers: 2, Freezes: true, Steered: true, Play: stale},
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
			err = sleep.For(ctx, p.Keeper.Thaw)
			l.Signal(syscall.SIGCONT)
			if err != nil {
				return err
			}
			if err := sleep.For(ctx, p.Keeper.Store.Lease); err != nil { // to notice, and to come back
				return err
			}
			p.Fleet.Steer(p.Fleet.Keepers[0])
			return p.Prompt(ctx, "p1", word(p))
		}},
	}
}
