package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse/store/sqlite"
)

const (
	// stored is how many sessions a server starts with, orphans how many of them had an
	// active turn when the server before it was killed.
	stored  = 10_000
	orphans = 500
)

// starts measures what many stored sessions cost a server that starts: time,
// memory, and how soon those that were at work are at rest.
func (b *bench) starts(ctx context.Context) error {
	full, err := b.space("start")
	if err != nil {
		return err
	}
	if err := writeMany(ctx, full, stored); err != nil {
		return err
	}
	if err := b.startEmptyAndFull(ctx, full); err != nil {
		return err
	}
	return b.startAfterKill(ctx, full)
}

// writeMany stores n sessions, each with one turn.
func writeMany(ctx context.Context, data string, n int) (err error) {
	s, err := sqlite.Open(ctx, data, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return fromAll(writers, (n+writers-1)/writers, func(i int) error {
		h, err := newHistory(ctx, s, fmt.Sprintf("writer %d", i))
		if err != nil {
			return err
		}
		return h.turns(ctx, 1)
	})
}

// startEmptyAndFull starts a server with nothing and one with much, by turns.
func (b *bench) startEmptyAndFull(ctx context.Context, full string) error {
	var ours, empty sample
	var memory, least int64
	rounds := b.times(5)
	for n := range rounds {
		none, err := b.space("empty")
		if err != nil {
			return err
		}
		for _, side := range []struct {
			data   string
			took   *sample
			memory *int64
		}{{none, &empty, &least}, {full, &ours, &memory}} {
			s, err := b.serve(ctx, side.data)
			if err != nil {
				return err
			}
			*side.took = append(*side.took, s.ready)
			if n == rounds-1 {
				time.Sleep(2 * time.Second) // until it has come to rest
				*side.memory, err = s.resident()
			}
			s.kill()
			if err != nil {
				return err
			}
		}
	}
	us, them := took("ours", ours.median()), took("empty", empty.median())
	b.report("bench", line{
		Name: "start", Numbers: []number{us, them, ratio(us, them), count("sessions", stored)},
		Targets: []target{atMost("ours", 1000)},
	})
	held, bare := number{"ours", float64(memory) / (1 << 20), mebibytes}, number{"empty", float64(least) / (1 << 20), mebibytes}
	b.report("bench", line{
		Name: "idle-memory", Numbers: []number{held, bare, ratio(held, bare), count("sessions", stored)},
		Targets: []target{atMost("ours", 64)},
	})
	return nil
}

// startAfterKill leaves many sessions waiting for a model, kills the server, and
// times how soon after the next start every one of them is at rest.
func (b *bench) startAfterKill(ctx context.Context, data string) error {
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	s, err := b.serve(ctx, data, "--scripted-url", p.url)
	if err != nil {
		return err
	}
	// The model keeps each of them waiting once and answers at once after that.
	const askers = 20
	err = fromAll(askers, orphans/askers, func(i int) error {
		_, err := s.create(ctx, map[string]any{
			"model": "scripted", "warm": false, "prompt": fmt.Sprintf(`%d %d SCRIPT[{"text":"here","hang":true,"times":1}]`, i, time.Now().UnixNano()),
		})
		return err
	})
	if err == nil {
		if err = until(ctx, func() (bool, error) { return p.plays.Calls().Requests >= orphans, nil }); err != nil {
			err = fmt.Errorf("wait for sessions to be at work: %w", err)
		}
	}
	s.kill()
	if err != nil {
		return err
	}
	if s, err = b.serve(ctx, data, "--scripted-url", p.url); err != nil {
		return err
	}
	if err := until(ctx, idle(ctx, s)); err != nil {
		s.kill()
		return fmt.Errorf("wait for sessions to be at rest: %w", err)
	}
	rested := time.Since(s.began)
	replies := p.plays.Calls().Replies
	if err := s.stop(); err != nil {
		return err
	}
	if replies < orphans {
		return fmt.Errorf("%d turns were left at work and %d were answered", orphans, replies)
	}
	b.report("bench", line{
		Name: "settle", Numbers: []number{took("ours", rested), took("ready", s.ready), count("orphans", orphans), count("sessions", stored)},
		Targets: []target{atMost("ours", 10_000)},
	})
	return nil
}

// idle reports whether no session is at work.
func idle(ctx context.Context, s *server) func() (bool, error) {
	return func() (bool, error) {
		running, err := s.anyIn(ctx, "running")
		return !running, err
	}
}
