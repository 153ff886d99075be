package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// short and long are the lengths of the sessions that are opened.
const (
	short = 1_000
	long  = 100_000
)

// opens compares opening a long session with opening a short one: a session
// loads by its tail, whatever its past.
func (b *bench) opens(ctx context.Context) error {
	data, err := b.space("open")
	if err != nil {
		return err
	}
	var ids [2]dormouse.SessionID
	for i, n := range []uint64{short, long} {
		if ids[i], err = writeLong(ctx, data, n); err != nil {
			return err
		}
	}
	if err := b.openInside(ctx, data, ids); err != nil {
		return err
	}
	return b.openOutside(ctx, data, ids)
}

// writeLong writes a session of about n events as it is found on a usual day:
// the cached fold is there, and half of what may follow it before the next one.
func writeLong(ctx context.Context, data string, n uint64) (id dormouse.SessionID, err error) {
	s, err := sqlite.Open(ctx, data, sqlite.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	h, err := newHistory(ctx, s, fmt.Sprintf("%d events", n))
	if err != nil {
		return "", err
	}
	const atOnce, tail = 50, 8 // turns of sixteen events
	for h.state.Seq < n {
		if err := h.turns(ctx, atOnce); err != nil {
			return "", err
		}
	}
	// An actor that leaves caches what it believes.
	all, err := load(ctx, s, h.id, new(sample))
	if err != nil {
		return "", err
	}
	if err := all.Close(ctx); err != nil {
		return "", err
	}
	if h.epoch, err = s.Claim(ctx, h.id, 0); err != nil {
		return "", err
	}
	return h.id, h.turns(ctx, tail)
}

// load opens a session in fresh memory and adds what that took.
func load(ctx context.Context, s *sqlite.Store, id dormouse.SessionID, took *sample) (*session.Sessions, error) {
	all, err := session.New(session.Config{Store: s, Driver: noSandboxes{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return all, took.timed(func() error {
		// A command that is refused needs the actor and changes nothing.
		if err := all.Do(ctx, id, owner, law.Cancel{Prompt: "sevt_none"}); !errors.Is(err, dormouse.ErrNotFound) {
			return fmt.Errorf("cancel a prompt that is not there: %w", err)
		}
		return nil
	})
}

// noSandboxes is a driver for sessions that need none.
type noSandboxes struct{ sandbox.Driver }

// KeepsWorkspace lets sessions be opened without anywhere to save files.
func (noSandboxes) KeepsWorkspace() bool { return true }

// openInside measures what a server's own memory does: peek reads a state, load
// takes the lease as well, which is a commit.
func (b *bench) openInside(ctx context.Context, data string, ids [2]dormouse.SessionID) error {
	var peeks, loads [2]sample
	for range b.times(40) {
		for i, id := range ids {
			if err := openOnce(ctx, data, id, &peeks[i], &loads[i]); err != nil {
				return err
			}
		}
	}
	b.reportOpen("open-peek", peeks, 3)
	b.reportOpen("open-load", loads, 3)
	return nil
}

// openOnce opens the database anew, with cold caches, and closes it under the actor, so
// that nothing stays cached for the next sample.
func openOnce(ctx context.Context, data string, id dormouse.SessionID, peek, loading *sample) error {
	s, err := sqlite.Open(ctx, data, sqlite.Options{})
	if err != nil {
		return err
	}
	idle, err := session.New(session.Config{Store: s, Driver: noSandboxes{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	err = peek.timed(func() error {
		_, err := idle.Peek(ctx, id)
		return err
	})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	all, err := load(ctx, s, id, loading)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return errors.Join(s.Close(), all.Close(ctx))
}

// openOutside measures the first answer of a fresh server: a look at a session,
// and a prompt to one that is not in memory.
func (b *bench) openOutside(ctx context.Context, data string, ids [2]dormouse.SessionID) error {
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	var looks, asks [2]sample
	for range b.times(10) {
		s, err := b.serve(ctx, data, "--scripted-url", p.url)
		if err != nil {
			return err
		}
		for i, id := range ids {
			look := func() error { return s.call(ctx, http.MethodGet, "/api/sessions/"+string(id), nil, nil) }
			ask := func() error { return s.prompt(ctx, string(id), "SCRIPT[{\"text\":\"yes\"}]") }
			// The turn is of no interest, and in the way of the next.
			stop := func() error { return s.call(ctx, http.MethodPost, "/api/sessions/"+string(id)+"/interrupt", nil, nil) }
			if err := errors.Join(looks[i].timed(look), asks[i].timed(ask), stop(), until(ctx, idle(ctx, s))); err != nil {
				s.kill()
				return err
			}
		}
		s.kill() // a clean stop would shorten what the next one has to read
	}
	b.reportOpen("open-get", looks, 0)
	b.reportOpen("open-prompt", asks, 0)
	return nil
}

// reportOpen holds a pair of samples to the promise that length does not matter,
// and the short one to a limit in milliseconds, if there is one.
func (b *bench) reportOpen(name string, pair [2]sample, limit float64) {
	few, many := took("1000", pair[0].median()), took("100000", pair[1].median())
	l := line{Name: name, Numbers: []number{few, many, ratio(many, few)}, Targets: []target{atMost("ratio", 2)}}
	if limit > 0 {
		l.Targets = append([]target{atMost("1000", limit)}, l.Targets...)
	}
	b.report("bench", l)
}
