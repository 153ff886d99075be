package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// touched is how much memory a process in a hibernating sandbox has written to,
// in MiB. The first is next to nothing.
var touched = []int{0, 64, 256, 500}

// sleeper is a session that hibernates and wakes again and again.
type sleeper struct {
	s        *server
	session  string
	events   *follower
	pid      string // of its shell, which must not change
	mebibyte int
	down, up sample
	disk     sample // the time in which this disk takes as much
}

// hibernations measures hibernating and waking by the amount of memory in use. The memory
// is random, so that compression cannot help. It is compared with storing as many bytes
// on this disk.
func (b *bench) hibernations(ctx context.Context, s *server) error {
	var all []*sleeper
	for _, mib := range touched {
		n, err := newSleeper(ctx, s, mib)
		if err != nil {
			return err
		}
		defer n.events.close()
		all = append(all, n)
	}
	for round := range 1 + b.times(10) {
		for _, n := range all {
			if round == 1 { // the one before only warmed things up
				n.down, n.up, n.disk = nil, nil, nil
			}
			if err := n.cycle(ctx, b.dir); err != nil {
				return fmt.Errorf("with %d MiB: %w", n.mebibyte, err)
			}
		}
	}
	for _, n := range all {
		down := line{Name: "hibernate", Numbers: []number{
			took("ours", n.down.median()), {Name: "touched", Value: float64(n.mebibyte), Unit: mebibytes}, took("min", n.down.least()), took("disk", n.disk.median()),
		}}
		up := line{Name: "wake", Numbers: []number{
			took("ours", n.up.median()), {Name: "touched", Value: float64(n.mebibyte), Unit: mebibytes}, took("min", n.up.least()),
		}}
		if n.mebibyte == 0 {
			down.Targets, up.Targets = []target{atMost("ours", 150)}, []target{atMost("ours", 200)}
		}
		b.report("bench", down)
		b.report("bench", up)
	}
	return nil
}

// newSleeper creates a session with a shell and a process. The process has filled its
// memory.
func newSleeper(ctx context.Context, s *server, mib int) (*sleeper, error) {
	session, err := s.createBox(ctx)
	if err != nil {
		return nil, err
	}
	n := &sleeper{s: s, session: session, mebibyte: mib}
	fill := fmt.Sprintf(`perl -e 'open F, "<", "/dev/urandom"; sysread(F, $b, 1 << 20, $_ << 20) for 0..%d-1; open R, ">", "ready"; close R; sleep 1 while 1' </dev/null >/dev/null 2>&1 &`, mib)
	if _, err := s.exec(ctx, session, "main", fill); err != nil {
		return nil, err
	}
	if err := until(ctx, func() (bool, error) {
		is, err := s.exec(ctx, session, "main", "test -e ready && echo yes; true")
		return is == "yes", err
	}); err != nil {
		return nil, fmt.Errorf("wait for memory to be filled: %w", err)
	}
	if n.pid, err = s.exec(ctx, session, "main", "echo $$ $(jobs -p)"); err != nil {
		return nil, err
	}
	n.events, err = s.follow(ctx, "/api/sessions/"+session+"/events?follow=1", asleep, 64<<10)
	return n, err
}

// cycle hibernates the session and wakes it with a command that its shell answers.
func (n *sleeper) cycle(ctx context.Context, dir string) error {
	if err := n.down.timed(func() error {
		if err := n.s.call(ctx, http.MethodPost, "/api/sessions/"+n.session+"/hibernate", nil, nil); err != nil {
			return err
		}
		return n.events.rest()
	}); err != nil {
		return fmt.Errorf("hibernate: %w", err)
	}
	if err := n.s.awaitSpares(ctx, 1); err != nil {
		return err
	}
	time.Sleep(moment)
	if err := n.up.timed(func() error { return n.s.says(ctx, n.session, "main", "echo $$ $(jobs -p)", n.pid) }); err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	if err := n.s.awaitSpares(ctx, 1); err != nil { // making the next spare must not slow this down
		return err
	}
	time.Sleep(moment)
	return n.disk.timed(func() error { return keepRandom(dir, n.mebibyte) })
}

// asleep is the mark of a sandbox that has ended.
const asleep = "\nevent: sandbox.stopped\n"

// keepRandom writes this many incompressible bytes to a file, and returns once it is
// durable.
func keepRandom(dir string, mib int) (err error) {
	f, err := os.Create(filepath.Join(dir, "kept"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	for range mib {
		if _, err := f.Write(noise); err != nil {
			return err
		}
	}
	return f.Sync()
}

// noise is a mebibyte that cannot be packed.
var noise = func() []byte {
	b := make([]byte, 1<<20)
	_, _ = rand.Read(b) // it never fails
	return b
}()
