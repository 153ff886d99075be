package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
)

// versions measures this binary beside another, such as the one before a change:
// sandboxes, turns and durable appends, all from outside. The two take turns, so that
// whatever else the machine does meets both.
func (b *bench) versions(ctx context.Context) (err error) {
	if b.before == "" {
		return nil
	}
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	now, before := &side{name: "now", provider: p}, &side{name: "before", provider: p}
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
	for _, what := range []string{"warm", "echo", "turn", "append"} {
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
	provider   *provider
	warm, cold *server
	standing   string
	plain      *server // with local sandboxes
	sessions   [writers]string
	changes    atomic.Int64
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
	if err := s.cold.says(ctx, s.standing, "main", echoShort, "hello"); err != nil {
		return err
	}
	data, err := of.space(s.name + "-plain")
	if err != nil {
		return err
	}
	if s.plain, err = of.serve(ctx, data, "--scripted-url", s.provider.url); err != nil {
		return err
	}
	for i := range s.sessions {
		if s.sessions[i], err = s.plain.create(ctx, map[string]any{"model": "scripted", "warm": false}); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) round(ctx context.Context, t timings, claims bool) error {
	if claims {
		c := &contest{timings: t}
		if err := c.claim(ctx, "warm "+s.name, s.warm, 1); err != nil {
			return err
		}
	}
	if err := t.times("echo "+s.name, burst, func() error { return s.cold.says(ctx, s.standing, "main", echoShort, "hello") }); err != nil {
		return err
	}
	if err := s.turns(ctx, t); err != nil {
		return err
	}
	return t.times("append "+s.name, 1, func() error { return s.append(ctx) })
}

// turns has a new session do a few.
func (s *side) turns(ctx context.Context, t timings) error {
	w, err := newWorker(ctx, s.plain)
	if err != nil {
		return err
	}
	if err := t.times("turn "+s.name, burst, func() error { return w.turn(ctx) }); err != nil {
		return err
	}
	return w.end(ctx)
}

// append changes the title of every session a few times, all sessions at once.
func (s *side) append(ctx context.Context) error {
	const each = 4
	return fromAll(writers, each, func(i int) error {
		title := map[string]any{"title": fmt.Sprint("change ", s.changes.Add(1))}
		return s.plain.call(ctx, http.MethodPatch, "/api/sessions/"+s.sessions[i], title, nil)
	})
}

func (s *side) close(ctx context.Context) error {
	var errs []error
	if s.plain != nil {
		errs = append(errs, s.plain.stop())
	}
	for _, server := range []*server{s.warm, s.cold} {
		if server != nil {
			errs = append(errs, server.clear(ctx))
		}
	}
	return errors.Join(errs...)
}
