package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// plainTurn is a prompt whose turn is two model calls and a command between
// them, none of which takes any time of its own.
const plainTurn = `go SCRIPT[{"tool":"bash","input":{"command":"true"}},{"text":"done"}]`

const (
	// together is how many sessions work at once.
	together = 16
	// perSession is how many turns a session is asked for. Each sends the model
	// everything said before, so that a session which never ends would measure
	// its own length.
	perSession = 20
)

// turns measures what a turn costs beyond the work in it: alone, and from many
// sessions at once.
func (b *bench) turns(ctx context.Context) error {
	data, err := b.space("turn")
	if err != nil {
		return err
	}
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	s, err := b.serve(ctx, data, "--scripted-url", p.url)
	if err != nil {
		return err
	}
	if err := errors.Join(b.turnAlone(ctx, s, p), b.turnsTogether(ctx, s, p)); err != nil {
		s.kill()
		return err
	}
	return s.stop()
}

// worker is a session with its follower.
type worker struct {
	s       *server
	session string
	events  *follower
}

// newWorker makes a session and takes it through one turn, so that its sandbox
// is up.
func newWorker(ctx context.Context, s *server) (*worker, error) {
	id, err := s.create(ctx, map[string]any{"model": "scripted"})
	if err != nil {
		return nil, err
	}
	f, err := s.follow(ctx, "/api/sessions/"+id+"/events?follow=1", atRest, 64<<10)
	if err != nil {
		return nil, err
	}
	w := &worker{s, id, f}
	return w, w.turn(ctx)
}

// end deletes the session and waits for its sandbox to end, so that its cleanup does not
// disturb the next measurement.
func (w *worker) end(ctx context.Context) error {
	w.events.close()
	if err := w.s.call(ctx, http.MethodPost, "/api/sessions/"+w.session+"/terminate", nil, nil); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		var view struct {
			Sandbox struct {
				Phase string `json:"phase"`
			} `json:"sandbox"`
		}
		err := w.s.call(ctx, http.MethodGet, "/api/sessions/"+w.session, nil, &view)
		return view.Sandbox.Phase == "cold", err
	})
}

// turn asks, and returns once the session says that it rests.
func (w *worker) turn(ctx context.Context) error {
	if err := w.s.prompt(ctx, w.session, plainTurn); err != nil {
		return err
	}
	return w.events.rest()
}

// baseline does the work of turns with no runtime around it: a transcript in memory, the
// model and the command.
type baseline struct {
	provider *provider
	said     []any
}

func (t *baseline) turn(ctx context.Context) error {
	type m = map[string]any
	say := func(role string, part m) { t.said = append(t.said, m{"role": role, "content": []any{part}}) }
	say("user", m{"type": "text", "text": plainTurn})
	if err := t.provider.ask(ctx, t.said); err != nil {
		return err
	}
	use := fmt.Sprintf("toolu_%d", len(t.said))
	say("assistant", m{"type": "tool_use", "id": use, "name": "bash", "input": m{"command": "true"}})
	if err := bareExec(ctx); err != nil {
		return err
	}
	say("user", m{"type": "tool_result", "tool_use_id": use, "content": "(no output)"})
	if err := t.provider.ask(ctx, t.said); err != nil {
		return err
	}
	say("assistant", m{"type": "text", "text": "done"})
	return nil
}

func (b *bench) turnAlone(ctx context.Context, s *server, p *provider) error {
	var ours, bare, execs, shells sample
	for range max(1, b.times(200)/perSession) {
		w, err := newWorker(ctx, s)
		if err != nil {
			return err
		}
		t := &baseline{provider: p}
		for range perSession {
			if err := errors.Join(
				ours.timed(func() error { return w.turn(ctx) }),
				bare.timed(func() error { return t.turn(ctx) }),
				shells.timed(func() error { return bareExec(ctx) }),
			); err != nil {
				return err
			}
		}
		took, err := w.execs(ctx)
		if err != nil {
			return err
		}
		execs = append(execs, took...)
		if err := w.end(ctx); err != nil {
			return err
		}
	}
	us, them := took("ours", ours.median()), took("bare", bare.median())
	b.report("bench", line{
		Name: "turn", Numbers: []number{us, them, ratio(us, them), took("added", ours.median()-bare.median()), took("p99", ours.quantile(0.99))},
		Targets: []target{atMost("added", 10)},
	})
	us, them = took("ours", execs.median()), took("fork", shells.median())
	b.report("bench", line{Name: "exec", Numbers: []number{us, them, ratio(us, them), took("p99", execs.quantile(0.99))}})
	return nil
}

// execs is how long the session's commands took, from the record that they
// begin to the record that they ended.
func (w *worker) execs(ctx context.Context) (sample, error) {
	var answer struct {
		Ops []struct {
			Kind     string    `json:"kind"`
			Started  time.Time `json:"started_at"`
			Finished time.Time `json:"finished_at"`
		} `json:"ops"`
	}
	if err := w.s.call(ctx, http.MethodGet, "/api/sessions/"+w.session+"/ops?limit=1000", nil, &answer); err != nil {
		return nil, err
	}
	var s sample
	for _, o := range answer.Ops {
		if o.Kind == "exec" {
			s = append(s, o.Finished.Sub(o.Started))
		}
	}
	return s, nil
}

// turnsTogether runs rounds of our turns and of bare ones, each from as many
// goroutines as there are sessions.
func (b *bench) turnsTogether(ctx context.Context, s *server, p *provider) error {
	rounds := max(1, b.times(100)/perSession)
	var ours, bare, cpu time.Duration
	for range rounds {
		workers, baselines := make([]*worker, together), make([]*baseline, together)
		for i := range workers {
			baselines[i] = &baseline{provider: p}
			var err error
			if workers[i], err = newWorker(ctx, s); err != nil {
				return err
			}
		}
		began, busy := time.Now(), s.busy()
		if err := fromAll(together, perSession, func(i int) error { return workers[i].turn(ctx) }); err != nil {
			return err
		}
		ours += time.Since(began)
		cpu += s.busy() - busy
		began = time.Now()
		if err := fromAll(together, perSession, func(i int) error { return baselines[i].turn(ctx) }); err != nil {
			return err
		}
		bare += time.Since(began)
		for _, w := range workers {
			if err := w.end(ctx); err != nil {
				return err
			}
		}
	}
	n := rounds * perSession * together
	us, them := rate("ours", n, ours), rate("bare", n, bare)
	b.report("bench", line{
		Name: "turns", Numbers: []number{us, them, ratio(us, them), took("cpu", cpu/time.Duration(n)), count("sessions", together)},
		Targets: []target{atLeast("ours", 200)},
	})
	return nil
}
