package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

const (
	// askers is how many connections send requests at once. Each sends the next one as
	// soon as it has its answer.
	askers = 64
	// busySessions is how many sessions events are sent to.
	busySessions = 64
)

// v1Rates measures how fast sessions are created and events are accepted. Whatever is
// answered is durable, so the speed of the disk is printed beside it.
func (b *bench) v1Rates(ctx context.Context) (err error) {
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	s, err := b.serveSandboxes(ctx, "v1-rate", 0, "--scripted-url", p.url) // no session needs a sandbox
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	o, err := offer(ctx, s)
	if err != nil {
		return err
	}
	wires := make([]*wire, askers)
	for i := range wires {
		if wires[i], err = s.dial(ctx); err != nil {
			return err
		}
		defer wires[i].close()
	}
	return errors.Join(b.v1Creates(s, o, wires), b.v1Sends(ctx, s, o, wires))
}

func (b *bench) v1Creates(s *server, o *official, wires []*wire) error {
	body := o.body("")
	create := func(i int) error { return wires[i].post("/v1/sessions", body) }
	if err := fromAll(askers, 5, create); err != nil { // it wakes up
		return err
	}
	l, err := b.rated(s, "v1-create", b.times(6400)/askers, create)
	if err != nil {
		return err
	}
	l.Targets = []target{atLeast("ours", 1000)}
	b.report("bench", l)
	return nil
}

// v1Sends sends to sessions whose model keeps them waiting.
func (b *bench) v1Sends(ctx context.Context, s *server, o *official, wires []*wire) error {
	sessions := make([]string, busySessions)
	for i := range sessions {
		var err error
		if sessions[i], err = o.session(ctx, `SCRIPT[{"hang":true}]`); err != nil {
			return err
		}
	}
	for _, id := range sessions {
		if err := until(ctx, func() (bool, error) {
			status, err := o.status(ctx, id)
			return status == "running", err
		}); err != nil {
			return err
		}
	}
	body := sending("and another thing")
	send := func(i int) error { return wires[i].post(eventsOf(sessions[i%busySessions]), body) }
	if err := fromAll(askers, 5, send); err != nil {
		return err
	}
	// most keeps below the number of prompts that may wait in a session.
	const most = 900 * busySessions / askers
	l, err := b.rated(s, "v1-send", min(b.times(32_000)/askers, most), send)
	if err != nil {
		return err
	}
	l.Targets = []target{atLeast("ours", 5000)}
	b.report("bench", l)
	return nil
}

// rated is how fast all connections are answered, what that costs the server, and
// what the disk would allow if it had to sync for each.
func (b *bench) rated(s *server, name string, each int, ask func(i int) error) (line, error) {
	samples := make([]sample, askers)
	began, busy := time.Now(), s.busy()
	if err := fromAll(askers, each, func(i int) error { return samples[i].timed(func() error { return ask(i) }) }); err != nil {
		return line{}, err
	}
	elapsed := time.Since(began)
	cpu := s.busy() - busy
	n := each * askers
	all := slices.Concat(samples...)
	return line{Name: name, Numbers: []number{
		rate("ours", n, elapsed), rate("fsync", 1, b.floors.sync), took("p50", all.median()), took("p99", all.quantile(0.99)),
		took("cpu", cpu/time.Duration(n)), count("clients", askers),
	}}, nil
}

// post asks and waits for a good answer.
func (w *wire) post(path, body string) error {
	status, answer, err := w.ask(http.MethodPost, path, body)
	if err == nil && status >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %d %s", path, status, answer)
	}
	return err
}
