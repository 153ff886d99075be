package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// crowd is how many listen, the same number to each of the sessions.
	crowd, crowdSessions = 1000, 100
	// crowdTurns is how many turns every session is asked for, one after the other.
	crowdTurns = 10
)

// v1Crowd has many clients follow sessions that all work at once. The latency of an event
// is measured from the time it carries, which is when the session decided it and before it
// was durable, to when a client had read it; that of every client is counted. No client may
// miss an event.
func (b *bench) v1Crowd(ctx context.Context) (err error) {
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	s, err := b.serveSandboxes(ctx, "v1-crowd", 0, "--scripted-url", p.url) // no session needs a sandbox
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	o, err := offer(ctx, s)
	if err != nil {
		return err
	}
	before, err := s.resident()
	if err != nil {
		return err
	}
	sessions := make([]*audited, crowdSessions)
	for i := range sessions {
		if sessions[i], err = o.newAudited(ctx, crowd/crowdSessions); err != nil {
			return err
		}
		defer sessions[i].close()
	}
	listening, err := s.resident()
	if err != nil {
		return err
	}
	var hearing sync.WaitGroup
	for _, a := range sessions {
		for _, l := range a.listeners {
			hearing.Go(l.hear)
		}
	}
	began := time.Now()
	err = fromAll(crowdSessions, b.times(crowdTurns), func(i int) error { return sessions[i].turn(ctx) })
	worked := time.Since(began)
	after, err2 := s.resident()
	time.Sleep(time.Second) // whatever is on its way arrives
	for _, a := range sessions {
		a.close()
	}
	hearing.Wait()
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	return b.reportCrowd(ctx, sessions, worked, []number{
		{"rss", float64(after) / (1 << 20), mebibytes},
		{"per-client", float64(listening-before) / crowd / 1024, kibibytes},
	})
}

func (b *bench) reportCrowd(ctx context.Context, sessions []*audited, worked time.Duration, memory []number) error {
	var delays sample
	for _, a := range sessions {
		d, err := a.check(ctx)
		if err != nil {
			return err
		}
		delays = append(delays, d...)
	}
	turns := b.times(crowdTurns) * crowdSessions
	b.report("bench", line{
		Name: "v1-crowd", Numbers: slices.Concat([]number{
			took("p50", delays.median()), took("p99", delays.quantile(0.99)), took("most", delays.quantile(1)),
			rate("delivered", len(delays), worked), rate("turns", turns, worked), count("clients", crowd), count("sessions", crowdSessions),
		}, memory),
		Targets: []target{atMost("p99", 250)},
	})
	return nil
}

// audited is a session of which every listener keeps everything.
type audited struct {
	*official
	session   string
	lead      *follower // of the clients that send prompts
	listeners []*listener
}

func (o *official) newAudited(ctx context.Context, listeners int) (*audited, error) {
	id, err := o.session(ctx, "")
	if err != nil {
		return nil, err
	}
	a := &audited{official: o, session: id}
	if a.lead, err = o.listen(ctx, id); err != nil {
		return nil, err
	}
	for range listeners {
		f, err := o.listen(ctx, id)
		if err != nil {
			return nil, errors.Join(err, a.close())
		}
		a.listeners = append(a.listeners, &listener{follower: f})
	}
	return a, nil
}

func (a *audited) close() error {
	a.lead.close()
	for _, l := range a.listeners {
		l.close()
	}
	return nil
}

// turn asks for one, in which the model says a word.
func (a *audited) turn(ctx context.Context) error {
	if err := a.send(ctx, a.session, `SCRIPT[{"text":"done"}]`); err != nil {
		return err
	}
	return a.lead.rest()
}

// listener stores the bytes it was sent and when it had read them. They are parsed after
// the measurement.
type listener struct {
	*follower
	heard bytes.Buffer
	marks []mark
}

// mark says that so many bytes had been read at that time.
type mark struct {
	bytes int
	at    time.Time
}

func (l *listener) hear() {
	buffer := l.buf
	n := l.full
	for {
		l.heard.Write(buffer[:n])
		l.marks = append(l.marks, mark{l.heard.Len(), time.Now()})
		var err error
		if n, err = l.conn.Read(buffer); err != nil {
			return
		}
	}
}

// received is an event as a listener had it.
type received struct {
	ID        string     `json:"id"`
	Processed *time.Time `json:"processed_at"`
	delay     time.Duration
}

// events takes what was heard apart. It does so by hand, because when an event was heard is
// known by how many bytes came before it.
func (l *listener) events() (events []received, err error) {
	all, mark := l.heard.Bytes(), 0
	for at := 0; ; {
		end := bytes.IndexByte(all[at:], '\n')
		if end < 0 {
			return events, nil
		}
		line := all[at : at+end]
		at += end + 1
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		var e received
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("read %q: %w", data, err)
		}
		for l.marks[mark].bytes < at {
			mark++
		}
		if e.Processed != nil {
			e.delay = l.marks[mark].at.Sub(*e.Processed)
		}
		events = append(events, e)
	}
}

// check compares what every listener heard with the history, and returns how long
// each event took to reach each of them.
func (a *audited) check(ctx context.Context) (sample, error) {
	history, err := a.history(ctx, a.session)
	if err != nil {
		return nil, err
	}
	slices.Sort(history)
	var delays sample
	var first []string
	for i, l := range a.listeners {
		events, err := l.events()
		if err != nil {
			return nil, err
		}
		var ids []string
		for _, e := range events {
			ids = append(ids, e.ID)
			if e.Processed != nil {
				delays = append(delays, e.delay)
			}
		}
		if i == 0 {
			first = slices.Clone(ids)
		} else if !slices.Equal(first, ids) {
			return nil, fmt.Errorf("of %s one client was given %d events and another %d, or in another order", a.session, len(first), len(ids))
		}
		slices.Sort(ids)
		if ids = slices.Compact(ids); !slices.Equal(ids, history) { // one that was queued comes again when it is taken
			return nil, fmt.Errorf("%s has %d events, and a client was given %d", a.session, len(history), len(ids))
		}
	}
	return delays, nil
}
