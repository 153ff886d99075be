package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	// audience is how many follow the one session.
	audience = 100
	// A script of steps replies, each with calls of a tool that is not there, says
	// much in little time: every call is an event, and so is its refusal.
	steps, calls = 4, 500
)

// fanout measures how fast one session reaches many followers, beside a server
// that only hands prepared bytes to as many.
func (b *bench) fanout(ctx context.Context) error {
	data, err := b.space("fanout")
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
	defer s.kill()
	plain, err := b.startBare(ctx)
	if err != nil {
		return err
	}
	defer plain.kill()

	var ours, bare time.Duration
	var delivered, handed int
	for range b.times(4) {
		id, err := s.create(ctx, map[string]any{"model": "scripted", "warm": false})
		if err != nil {
			return err
		}
		n, took, err := deliver(ctx, s.remote, "/api/sessions/"+id+"/events?follow=1", atRest, func() error { return s.prompt(ctx, id, chatter()) })
		if err != nil {
			return err
		}
		delivered, ours = delivered+n, ours+took
		n, took, err = deliver(ctx, plain.remote, "/events", bareEnd, func() error { return plain.call(ctx, http.MethodPost, "/go", nil, nil) })
		if err != nil {
			return err
		}
		handed, bare = handed+n, bare+took
	}
	us, them := rate("ours", delivered, ours), rate("bare", handed, bare)
	b.report("bench", line{
		Name: "fanout", Numbers: []number{us, them, ratio(us, them), count("followers", audience), count("events", delivered/audience)},
		Targets: []target{atLeast("ours", 500_000)},
	})
	return b.fanoutPrompts(ctx, s)
}

// fanoutPrompts measures the other extreme: events that come one by one. Each is a prompt
// to a session whose model does not answer.
func (b *bench) fanoutPrompts(ctx context.Context, s *server) error {
	const askers, each = 16, 50
	id, err := s.create(ctx, map[string]any{"model": "scripted", "warm": false, "prompt": `SCRIPT[{"hang":true}]`})
	if err != nil {
		return err
	}
	n, took, err := deliver(ctx, s.remote, "/api/sessions/"+id+"/events?follow=1", atRest, func() error {
		return errors.Join(
			fromAll(askers, each, func(int) error { return s.prompt(ctx, id, "and another thing") }),
			s.call(ctx, http.MethodPost, "/api/sessions/"+id+"/interrupt", map[string]any{"flush_queue": true}, nil),
		)
	})
	if err != nil {
		return err
	}
	b.report("bench", line{
		Name: "fanout-prompts", Numbers: []number{rate("ours", n, took), rate("prompts", askers*each, took), count("followers", audience)},
	})
	return nil
}

// chatter is a prompt that leads to many events.
func chatter() string {
	var s strings.Builder
	s.WriteString("talk SCRIPT[")
	for range steps {
		s.WriteString(`{"tools":[`)
		for i := range calls {
			if i > 0 {
				s.WriteByte(',')
			}
			fmt.Fprintf(&s, `{"name":"nothing","input":{"n":%d}}`, i)
		}
		s.WriteString(`]},`)
	}
	s.WriteString(`{"text":"done"}]`)
	return s.String()
}

// deliver follows over many connections, starts the events, and measures from the first
// event that anyone reads until everyone has read the last.
func deliver(ctx context.Context, c *remote, path, end string, start func() error) (delivered int, took time.Duration, err error) {
	type share struct {
		events      int
		first, last time.Time
		err         error
	}
	shares := make([]share, audience)
	followers := make([]*follower, audience)
	for i := range followers {
		if followers[i], err = c.follow(ctx, path, end, 256<<10); err != nil {
			return 0, 0, err
		}
		defer followers[i].close()
	}
	var running sync.WaitGroup
	for i, f := range followers {
		running.Go(func() {
			s := &shares[i]
			for done := false; !done && s.err == nil; {
				var n int
				n, done, s.err = f.read()
				if n == 0 {
					continue
				}
				s.last = time.Now()
				if s.events == 0 {
					s.first = s.last
				}
				s.events += n
			}
		})
	}
	if err = start(); err != nil {
		for _, f := range followers {
			f.close() // nothing will come
		}
	}
	running.Wait()
	first, last := shares[0].first, shares[0].last
	for _, s := range shares {
		err = errors.Join(err, s.err)
		if s.events != shares[0].events {
			err = errors.Join(err, fmt.Errorf("one follower was given %d events and another %d", shares[0].events, s.events))
		}
		delivered += s.events
		if s.first.Before(first) {
			first = s.first
		}
		if s.last.After(last) {
			last = s.last
		}
	}
	return delivered, last.Sub(first), err
}

// The bare fan-out: a server that knows nothing but the bytes to send.
const (
	bareEnd   = "\nevent: bare.end\n"
	bareEvent = `{"seq":%d,"id":"sevt_0123456789abcdefghjkmnpqrs","type":"agent.tool_use","thread":"sthr_0123456789abcdefghjkmnpqrs",` +
		`"actor":"agent","time":"2026-01-01T00:00:00.000000Z","payload":{"name":"nothing","input":{"n":100},"text":"as long as the events beside it are"}}`
)

// startBare runs this program as the bare server, so that both sides are in another
// process.
func (b *bench) startBare(ctx context.Context) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-bare", address)
	cmd.Stderr = os.Stderr
	s := &server{remote: newRemote(address), cmd: cmd, began: time.Now()}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.await(ctx); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

// serveBare sends the same number of events, in the same batches, to the clients that
// were connected when it was told to start.
func serveBare(ctx context.Context, address string) error {
	batches := make([][]byte, 0, steps)
	for i := range steps {
		var batch strings.Builder
		for j := range 2 * calls {
			seq := i*2*calls + j + 1
			fmt.Fprintf(&batch, "id: %d\nevent: agent.tool_use\ndata: "+bareEvent+"\n\n", seq, seq)
		}
		if i == steps-1 {
			batch.WriteString("event: bare.end\ndata: {}\n\n")
		}
		batches = append(batches, []byte(batch.String()))
	}
	var mu sync.Mutex
	start := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /go", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		close(start)
		start = make(chan struct{})
	})
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		told := start
		mu.Unlock()
		flush := http.NewResponseController(w).Flush
		_, _ = io.WriteString(w, ": following\n\n")
		_ = flush()
		<-told
		for _, b := range batches {
			_, _ = w.Write(b)
			_ = flush()
		}
	})
	s := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: patience}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return s.ListenAndServe()
}
