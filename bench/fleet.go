package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/pgserver"
	"github.com/dormouse-run/dormouse/store/postgres"
)

// fleets measures several servers on one real PostgreSQL.
func (b *bench) fleets(ctx context.Context) (err error) {
	db, err := pgserver.Start(ctx, "max_connections=300")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Stop()) }()
	for _, part := range []struct {
		name string
		run  func(*bench, context.Context, *pgserver.Server, string) error
	}{
		{"appends", (*bench).fleetAppends},
		{"follow", (*bench).fleetFollow},
		{"takeover", (*bench).fleetTakeover},
	} {
		if err := db.CreateDB(ctx, part.name, ""); err != nil {
			return err
		}
		if err := part.run(b, ctx, db, part.name); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// fleetServers starts servers that share a database, a directory and a model.
func (b *bench) fleetServers(ctx context.Context, store string, n int, p *provider) ([]*server, error) {
	data, err := b.space("fleet")
	if err != nil {
		return nil, err
	}
	var servers []*server
	for range n {
		s, err := b.serve(ctx, data, "--store", store, "--scripted-url", p.url, "--lease", "3s")
		if err != nil {
			for _, s := range servers {
				s.kill()
			}
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// fleetFollow compares the latency of an event for a follower on the server that made it
// with that for a follower on another server.
func (b *bench) fleetFollow(ctx context.Context, db *pgserver.Server, name string) error {
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	servers, err := b.fleetServers(ctx, db.URL(name), 2, p)
	if err != nil {
		return err
	}
	near, far := servers[0], servers[1]
	err = b.compareFollowers(ctx, near, far)
	return errors.Join(err, near.stop(), far.stop())
}

func (b *bench) compareFollowers(ctx context.Context, near, far *server) error {
	id, err := near.create(ctx, map[string]any{"model": "scripted"})
	if err != nil {
		return err
	}
	var ends [2]*follower
	for i, s := range []*server{near, far} {
		if ends[i], err = s.follow(ctx, "/api/sessions/"+id+"/events?follow=1", atRest, 64<<10); err != nil {
			return err
		}
		defer ends[i].close()
	}
	var here, there, added sample
	for n := range b.times(200) {
		began := time.Now()
		if err := near.prompt(ctx, id, plainTurn); err != nil {
			return err
		}
		var rested [2]time.Duration
		var running sync.WaitGroup
		errs := make([]error, 2)
		for i, f := range ends {
			running.Go(func() {
				errs[i] = f.rest()
				rested[i] = time.Since(began)
			})
		}
		running.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if n < 5 {
			continue // the sandbox was made, the relay was opened
		}
		here, there = append(here, rested[0]), append(there, rested[1])
		added = append(added, max(rested[1]-rested[0], 0))
	}
	b.report("bench", line{
		Name: "fleet-follow", Numbers: []number{took("added", added.median()), took("here", here.median()), took("there", there.median())},
		Targets: []target{atMost("added", 5)},
	})
	return nil
}

// takenOver is how many sessions have an active turn on the server that is killed.
const takenOver = 1000

// fleetTakeover kills a server and times how soon another has all its sessions.
func (b *bench) fleetTakeover(ctx context.Context, db *pgserver.Server, name string) (err error) {
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	servers, err := b.fleetServers(ctx, db.URL(name), 2, p)
	if err != nil {
		return err
	}
	doomed, heir := servers[0], servers[1]
	defer heir.kill()
	var mu sync.Mutex
	var ids []dormouse.SessionID
	const askers = 20
	err = fromAll(askers, takenOver/askers, func(i int) error {
		id, err := doomed.create(ctx, map[string]any{
			"model": "scripted", "warm": false, "prompt": fmt.Sprintf(`%d %d SCRIPT[{"text":"here","hang":true,"times":1}]`, i, time.Now().UnixNano()),
		})
		mu.Lock()
		ids = append(ids, dormouse.SessionID(id))
		mu.Unlock()
		return err
	})
	if err == nil {
		err = until(ctx, func() (bool, error) { return p.plays.Calls().Requests >= takenOver, nil })
	}
	doomed.kill()
	began := time.Now()
	if err != nil {
		return fmt.Errorf("wait for sessions to be at work: %w", err)
	}
	s, err := postgres.Open(ctx, db.URL(name), postgres.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := until(ctx, allAtRest(ctx, s, ids)); err != nil {
		return fmt.Errorf("wait for sessions to be at rest: %w", err)
	}
	b.report("bench", line{
		Name: "fleet-takeover", Numbers: []number{took("ours", time.Since(began)), took("lease", 3*time.Second), count("sessions", takenOver)},
		Targets: []target{atMost("ours", 10_000)},
	})
	return nil
}

// allAtRest reports whether every session has done what it was asked.
func allAtRest(ctx context.Context, s *postgres.Store, ids []dormouse.SessionID) func() (bool, error) {
	left := ids
	return func() (bool, error) {
		for len(left) > 0 {
			row, err := s.Session(ctx, left[0])
			if err != nil || row.Phase != dormouse.PhaseReady {
				return false, err
			}
			left = left[1:]
		}
		return true, nil
	}
}
