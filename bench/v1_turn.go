package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// v1Turns compares whole turns: a message is sent, the model asks for a command,
// the command runs, the model says its last word, and the client sees that the
// session rests. Both servers use the same model; ours runs the command in a
// sandbox.
func (b *bench) v1Turns(ctx context.Context) (err error) {
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	s, err := b.serveSandboxes(ctx, "v1-turn", 1, "--scripted-url", p.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.clear(context.WithoutCancel(ctx))) }()
	ours, err := offer(ctx, s)
	if err != nil {
		return err
	}
	theirs, err := b.startOpencode(ctx, p)
	if err != nil {
		return err
	}
	defer theirs.kill()
	d := &duel{provider: p, ours: ours, theirs: theirs}
	return errors.Join(b.v1Alone(ctx, d), b.v1Together(ctx, d))
}

// duel is two servers that do the same.
type duel struct {
	provider *provider
	ours     *official
	theirs   *opencode
}

// pair is a session of each.
type pair struct {
	*duel
	our, their string
	events     *follower
}

// newPair creates the sessions and runs warm-up turns in each: our sandbox has to be
// started, and their program compiled.
func (d *duel) newPair(ctx context.Context) (_ *pair, err error) {
	p := &pair{duel: d}
	if p.our, err = d.ours.session(ctx, ""); err != nil {
		return nil, err
	}
	if p.their, err = d.theirs.session(ctx); err != nil {
		return nil, err
	}
	if p.events, err = d.ours.listen(ctx, p.our); err != nil {
		return nil, err
	}
	const warmUp = 2
	for range warmUp {
		if err := errors.Join(p.turn(ctx), p.theirTurn(ctx)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// end ends our session and waits until its sandbox is gone, so that this slows nothing
// else down.
func (p *pair) end(ctx context.Context) error {
	p.events.close()
	return p.ours.remove(ctx, p.our)
}

func (p *pair) turn(ctx context.Context) error {
	if err := p.ours.send(ctx, p.our, plainTurn); err != nil {
		return err
	}
	return p.events.rest()
}

func (p *pair) theirTurn(ctx context.Context) error { return p.theirs.turn(ctx, p.their, plainTurn) }

// counted does something n times over, each of which has to ask the model twice.
func (d *duel) counted(n int, f func() error) error {
	before := d.provider.plays.Calls().Replies
	if err := f(); err != nil {
		return err
	}
	if asked := d.provider.plays.Calls().Replies - before; asked != 2*n {
		return fmt.Errorf("%d turns asked the model %d times", n, asked)
	}
	return nil
}

func (b *bench) v1Alone(ctx context.Context, d *duel) error {
	t := make(timings)
	const each = 10
	for range max(1, b.times(100)/each) {
		p, err := d.newPair(ctx)
		if err != nil {
			return err
		}
		for range each {
			if err := d.counted(2, func() error {
				return errors.Join(
					t.times("ours", 1, func() error { return p.turn(ctx) }),
					t.times("opencode", 1, func() error { return p.theirTurn(ctx) }),
				)
			}); err != nil {
				return err
			}
		}
		if err := p.end(ctx); err != nil {
			return err
		}
	}
	us, them := t.median("ours", "ours"), t.median("opencode", "opencode")
	b.report("bench", line{
		Name: "v1-turn", Numbers: []number{us, them, ratio(us, them), took("p99", t["ours"].quantile(0.99))},
		Targets: []target{atMost("ours", 40), atMost("ratio", 0.2)},
	})
	return nil
}

// v1Together runs rounds of each from many sessions at once, each with the machine
// to itself.
func (b *bench) v1Together(ctx context.Context, d *duel) error {
	const ourEach, theirEach = 20, 2
	rounds := b.times(3)
	var ours, theirs time.Duration
	for range rounds {
		pairs := make([]*pair, together)
		for i := range pairs {
			var err error
			if pairs[i], err = d.newPair(ctx); err != nil {
				return err
			}
		}
		for _, side := range []struct {
			each int
			turn func(i int) error
			took *time.Duration
		}{
			{ourEach, func(i int) error { return pairs[i].turn(ctx) }, &ours},
			{theirEach, func(i int) error { return pairs[i].theirTurn(ctx) }, &theirs},
		} {
			if err := b.calm(ctx); err != nil {
				return err
			}
			began := time.Now()
			if err := d.counted(side.each*together, func() error { return fromAll(together, side.each, side.turn) }); err != nil {
				return err
			}
			*side.took += time.Since(began)
		}
		for _, p := range pairs {
			if err := p.end(ctx); err != nil {
				return err
			}
		}
	}
	us, them := rate("ours", rounds*ourEach*together, ours), rate("opencode", rounds*theirEach*together, theirs)
	b.report("bench", line{
		Name: "v1-turns", Numbers: []number{us, them, ratio(us, them), count("sessions", together)},
		Targets: []target{atLeast("ratio", 10)},
	})
	return nil
}
