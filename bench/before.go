package main

import (
	"context"
	"errors"
	"path/filepath"
)

// versions measures the sandboxes of this binary beside those of another, such as
// the one before a change. The two take turns, so that whatever else the machine does
// meets both.
func (b *bench) versions(ctx context.Context) (err error) {
	if b.before == "" {
		return nil
	}
	now, before := &side{name: "now"}, &side{name: "before"}
	t := make(timings)
	defer func() {
		err = errors.Join(err, now.close(ctx), before.close(ctx))
	}()
	for _, s := range []struct {
		*side
		binary string
	}{{before, b.before}, {now, b.binary}} {
		if err := s.open(ctx, b, s.binary); err != nil {
			return err
		}
	}
	const rounds, claims, bursts = 5, 8, 20
	for n := range 1 + rounds {
		if n == 1 {
			t.forget() // the first round only warmed things up
		}
		for i := range b.times(max(claims, bursts)) {
			for _, s := range []*side{before, now} {
				if err := s.round(ctx, t, i < b.times(claims)); err != nil {
					return err
				}
			}
		}
	}
	for _, what := range []string{"warm", "echo"} {
		is, was := t.median(what+" now", "now"), t.median(what+" before", "before")
		b.report("bench", line{Name: "before-" + what, Targets: []target{atMost("ratio", 1.1)}, Numbers: []number{
			is, was, ratio(is, was), t.least(what+" now", "now-min"), t.least(what+" before", "before-min"),
		}})
	}
	return nil
}

// side is one of two binaries.
type side struct {
	name       string
	warm, cold *server
	standing   string
}

func (s *side) open(ctx context.Context, b *bench, binary string) (err error) {
	of := *b
	if of.binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	if s.warm, err = of.serveSandboxes(ctx, s.name+"-warm", 1); err != nil {
		return err
	}
	if s.cold, err = of.serveSandboxes(ctx, s.name+"-cold", 0); err != nil {
		return err
	}
	if s.standing, err = s.cold.createBox(ctx); err != nil {
		return err
	}
	return s.cold.says(ctx, s.standing, "main", echoShort, "hello")
}

func (s *side) round(ctx context.Context, t timings, claims bool) error {
	if claims {
		c := &contest{timings: t}
		if err := c.claim(ctx, "warm "+s.name, s.warm, 1); err != nil {
			return err
		}
	}
	return t.times("echo "+s.name, burst, func() error { return s.cold.says(ctx, s.standing, "main", echoShort, "hello") })
}

func (s *side) close(ctx context.Context) error {
	var errs []error
	for _, server := range []*server{s.warm, s.cold} {
		if server != nil {
			errs = append(errs, server.clear(ctx))
		}
	}
	return errors.Join(errs...)
}
