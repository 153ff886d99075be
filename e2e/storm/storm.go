// Package storm kills a server at random instants while many sessions are at
// work, and compares what is left with what was promised.
package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/e2e/play"
	"github.com/dormouse-run/dormouse/e2e/rig"
)

// Config chooses what a storm does.
type Config struct {
	rig.Binary
	Seed uint64
	// Runs is how often something is killed.
	Runs     int
	Sessions int
	Verbose  bool
	Out      io.Writer
}

// Summary is what a storm came to.
type Summary struct {
	Config
	Kills, Cases int
	Findings     oracle.Findings
	Dir          string
}

func (s Summary) String() string {
	counts := make(map[string]int)
	for zero, found := range s.Findings {
		counts[zero] = len(found)
	}
	return fmt.Sprintf("storm: seed=%d runs=%d kills=%d sessions=%d cases=%d %s",
		s.Seed, s.Runs, s.Kills, s.Sessions, s.Cases, oracle.Counts(counts))
}

// storm is one of them.
type storm struct {
	Config
	dir     string
	keeper  *rig.Keeper
	witness *rig.Witness
	models  *rig.Models
	actors  []*actor
	sum     *Summary

	mu sync.Mutex // guards sum.Findings
}

// Run lets sessions work, kills what they work with, and judges what is left.
func Run(ctx context.Context, c Config) (Summary, error) {
	s := &storm{Config: c, sum: &Summary{Config: c, Findings: make(oracle.Findings)}}
	var err error
	if s.dir, err = rig.TempDir("dormouse-storm-*"); err != nil {
		return *s.sum, err
	}
	s.sum.Dir = s.dir
	if s.models, err = rig.NewModels(); err != nil {
		return *s.sum, err
	}
	defer s.models.Close()
	if s.witness, err = rig.NewWitness(filepath.Join(s.dir, "world")); err != nil {
		return *s.sum, err
	}
	defer s.witness.Close()
	server := &rig.Server{
		Binary: c.Binary, Data: filepath.Join(s.dir, "data"), Model: s.models.URL(),
		Flags: []string{"--drop-after", "200ms"}, Log: filepath.Join(s.dir, "server.log"),
	}
	s.keeper = rig.Keep(ctx, server, nil)
	s.keeper.Run()
	defer server.KillSandboxes()
	defer s.keeper.Close()
	if err := s.rage(ctx); err != nil {
		return *s.sum, err
	}
	if err := s.judge(ctx); err != nil {
		return *s.sum, err
	}
	if s.sum.Findings.OK() {
		_ = os.RemoveAll(s.dir)
	}
	return *s.sum, nil
}

// rage keeps the sessions at work until everything has been killed often enough.
func (s *storm) rage(ctx context.Context) error {
	working, over := context.WithCancel(ctx)
	defer over()
	var running sync.WaitGroup
	errs := make([]error, s.Sessions)
	ready := make(chan struct{}, s.Sessions)
	for i := range s.Sessions {
		a := newActor(s, i)
		s.actors = append(s.actors, a)
		running.Go(func() { errs[i] = a.work(ctx, working, ready) })
	}
	for range s.Sessions {
		select {
		case <-ready:
		case <-ctx.Done():
		}
	}
	r := rand.New(rand.NewPCG(s.Seed, 2))
	for range s.Runs {
		const most = 700
		if err := rig.Pause(ctx, time.Duration(30+r.IntN(most))*time.Millisecond); err != nil {
			break
		}
		s.strike(ctx, r)
	}
	over()
	running.Wait()
	return errors.Join(errs...)
}

// strike kills a server or a runner, or both in either order, or stops a server
// and kills it while it stops.
func (s *storm) strike(ctx context.Context, r *rand.Rand) {
	l, err := s.keeper.Live(ctx)
	if err != nil {
		return
	}
	runner := func() {
		if pids := s.keeper.Runners(); len(pids) > 0 {
			_ = syscall.Kill(pids[r.IntN(len(pids))], syscall.SIGKILL)
			s.sum.Kills++
		}
	}
	server := func() {
		l.Kill()
		s.sum.Kills++
	}
	switch n := r.IntN(20); {
	case n < 12:
		server()
	case n < 15:
		runner()
	case n == 15:
		runner()
		server()
	case n == 16:
		server()
		runner()
	case n == 17:
		l.Signal(syscall.SIGTERM)
		_ = rig.Pause(ctx, time.Duration(r.IntN(30))*time.Millisecond)
		server()
	case n == 18:
		// Twice in a row: the second while the first is recovered from.
		server()
		_ = rig.Pause(ctx, time.Duration(r.IntN(60))*time.Millisecond)
		if next, err := s.keeper.Live(ctx); err == nil {
			next.Kill()
			s.sum.Kills++
		}
	default:
		if err := l.Stop(); err != nil && !l.Killed() {
			s.add(oracle.Stuck, "the server did not stop: %v", err)
		}
	}
	if s.Verbose {
		fmt.Fprintf(s.Out, "storm: %d kills\n", s.sum.Kills)
	}
}

func (s *storm) add(zero, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Findings.Add(zero, format, args...)
}

// judge holds every session against its promises, and once more after a restart.
func (s *storm) judge(ctx context.Context) error {
	s.settle(ctx)
	for _, a := range s.actors {
		s.sum.Cases += len(a.Acks())
	}
	if err := s.keeper.Halt(ctx); err != nil {
		s.add(oracle.Stuck, "the server did not stop: %v", err)
		return nil
	}
	if wrong, err := s.keeper.Check(ctx); err != nil {
		return err
	} else if wrong != "" {
		s.add(oracle.Diverged, "%s", wrong)
	}
	s.keeper.Resume()
	for _, a := range s.actors {
		s.look(ctx, a)
		a.Close()
	}
	return ctx.Err()
}

// settle gives every session the time it may take to rest, a new prompt, and
// its first judgement.
func (s *storm) settle(ctx context.Context) {
	var running sync.WaitGroup
	for _, a := range s.actors {
		running.Go(func() {
			within, cancel := context.WithTimeout(ctx, play.SettleWithin)
			defer cancel()
			if err := a.Rest(within, "retry"); err != nil {
				s.add(oracle.Stuck, "%s: %v", a.Name, err)
				return
			}
			shown, err := a.Show(ctx)
			if err == nil && shown.Phase != dormouse.PhaseTerminated {
				again, cancel := context.WithTimeout(ctx, play.SettleWithin)
				defer cancel()
				err = a.Prompt(again, "probe", a.Script(rig.Say("still here")))
				if err == nil {
					err = a.Rest(again, "retry")
				}
			}
			if err != nil {
				s.add(oracle.Stuck, "%s takes no prompt: %v", a.Name, err)
				return
			}
			s.look(ctx, a)
		})
	}
	running.Wait()
}

// look judges one session.
func (s *storm) look(ctx context.Context, a *actor) {
	f, _, err := a.Judge(ctx)
	if err != nil {
		s.add(oracle.Stuck, "%s: %v", a.Name, err)
	}
	for zero, found := range f {
		for _, text := range found {
			s.add(zero, "%s %s: %s", a.Name, a.ID, text)
		}
	}
}
