package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// writers is how many sessions append at once.
const writers = 64

// eventBody is as large as a usual event.
var eventBody = json.RawMessage(`{"text":"` + strings.Repeat("x", 380) + `"}`)

// appends compares durable appends from many sessions with the least that SQLite can do
// for them. Each append is one event with its rows.
func (b *bench) appends(ctx context.Context) error {
	dir, err := b.space("append")
	if err != nil {
		return err
	}
	ours, err := newAppender(ctx, dir)
	if err != nil {
		return err
	}
	bare, err := newBareLog(dir)
	if err != nil {
		return errors.Join(err, ours.close())
	}
	const rounds = 8
	each := b.times(48_000) / rounds / writers
	var our, their time.Duration
	for range rounds {
		for _, side := range []struct {
			write func(writer int) error
			took  *time.Duration
		}{
			{func(w int) error { return ours.append(ctx, w) }, &our},
			{bare.append, &their},
		} {
			began := time.Now()
			if err := fromAll(writers, each, side.write); err != nil {
				return errors.Join(err, ours.close(), bare.close())
			}
			*side.took += time.Since(began)
		}
	}
	n := rounds * each * writers
	us, them := rate("ours", n, our), rate("bare", n, their)
	b.report("bench", line{
		Name: "append", Numbers: []number{us, them, ratio(us, them), count("sessions", writers)},
		Targets: []target{atLeast("ratio", 0.5)},
	})
	return errors.Join(ours.close(), bare.close())
}

// fromAll calls f each times from n goroutines at once.
func fromAll(n, each int, f func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			for range each {
				if errs[i] = f(i); errs[i] != nil {
					return
				}
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// appender appends to one session per writer through the store.
type appender struct {
	store    store.Store
	sessions [writers]*history
}

func newAppender(ctx context.Context, dir string) (*appender, error) {
	s, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	a := &appender{store: s}
	for i := range a.sessions {
		if a.sessions[i], err = newHistory(ctx, s, fmt.Sprintf("writer %d", i)); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return a, nil
}

func (a *appender) append(ctx context.Context, writer int) error {
	h := a.sessions[writer]
	seq := h.state.Seq + 1
	e := dormouse.Event{
		Seq: seq, ID: dormouse.EventID(fmt.Sprintf("%s%d", dormouse.EventPrefix, seq)), Type: dormouse.AgentMessage,
		Thread: h.thread, Actor: dormouse.ActorAgent, Time: now(), Payload: eventBody,
	}
	return h.commit(ctx, []dormouse.Event{e})
}

func (a *appender) close() error { return a.store.Close() }
