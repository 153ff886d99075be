// Package monkey kills and freezes servers at random instants while many sessions
// are at work, and compares what is left with what was promised.
package monkey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Config chooses what a chaos test does.
type Config struct {
	rig.Binary
	// Store is the kind of store, Servers how many share it.
	Store   string
	Servers int
	Seed    uint64
	// Runs is how often something is struck.
	Runs     int
	Sessions int
	Verbose  bool
	Out      io.Writer
}

// lease is that of servers as they come.
const lease = 3 * time.Second

// dropAfter is how long a session with nothing to do stays with its server.
const dropAfter = 200 * time.Millisecond

// longest is how long a session may go without service after a fault: a lease,
// and the time to notice and to take over.
const longest = 5 * time.Second

// Summary is the result of a chaos test.
type Summary struct {
	Config
	Kills, Stops, Restarts, Cases int
	// Stale appends were refused, and due sessions taken over, as all lives of all
	// servers counted them.
	Stale, Takeovers int
	// Pause is the longest that a session was without service, and After what.
	Pause    time.Duration
	After    string
	Findings oracle.Findings
	Dir      string
}

// OK reports whether everything was as promised.
func (s Summary) OK() bool { return s.Findings.OK() && s.Pause <= longest }

func (s Summary) String() string {
	counts := make(map[string]int)
	for zero, found := range s.Findings {
		counts[zero] = len(found)
	}
	text := fmt.Sprintf("storm: seed=%d runs=%d servers=%d kills=%d stops=%d", s.Seed, s.Runs, s.Servers, s.Kills, s.Stops)
	if s.Servers > 1 {
		text += fmt.Sprintf(" restarts=%d", s.Restarts)
	}
	text += fmt.Sprintf(" sessions=%d cases=%d", s.Sessions, s.Cases)
	if s.Servers > 1 {
		text += fmt.Sprintf(" stale=%d takeovers=%d longest_pause=%.2fs", s.Stale, s.Takeovers, s.Pause.Seconds())
	}
	return text + " " + oracle.Counts(counts)
}

// chaos is one chaos test.
type chaos struct {
	Config
	dir     string
	stores  *rig.Stores
	fleet   *rig.Fleet
	witness *rig.Witness
	models  *rig.Models
	actors  []*actor
	probes  []*probe
	meters  *meters
	rand    *rand.Rand // of the strikes
	faults  []fault
	thawing sync.WaitGroup
	sum     *Summary

	mu sync.Mutex // guards sum.Findings
}

// Run lets sessions work, strikes what they work with, and judges what is left.
func Run(ctx context.Context, c Config) (Summary, error) {
	s := &chaos{Config: c, sum: &Summary{Config: c, Findings: make(oracle.Findings)}, rand: rand.New(rand.NewPCG(c.Seed, 2))}
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
	if s.stores, err = rig.NewStores(ctx, c.Store, lease); err != nil {
		return *s.sum, err
	}
	defer func() { _ = s.stores.Close() }()
	if c.Servers > 1 && !s.stores.Shared() {
		return *s.sum, fmt.Errorf("%d servers cannot share a store of the kind %q", c.Servers, c.Store)
	}
	if err := s.runAndJudge(ctx); err != nil {
		return *s.sum, err
	}
	if s.sum.OK() {
		_ = os.RemoveAll(s.dir)
	}
	return *s.sum, nil
}

// runAndJudge runs the sessions, and judges the result.
func (s *chaos) runAndJudge(ctx context.Context) error {
	store, drop, err := s.stores.Make(ctx)
	if err != nil {
		return err
	}
	defer drop()
	s.fleet = rig.NewFleet(ctx, rig.Server{
		Binary: s.Binary, Data: filepath.Join(s.dir, "data"), Store: store, Model: s.models.URL(),
		Flags: []string{"--drop-after", dropAfter.String()}, Log: filepath.Join(s.dir, "server.log"),
	}, s.Servers, nil)
	for _, k := range s.fleet.Keepers {
		k.Stubborn = store.Shared() // the database may not be there
	}
	s.fleet.Run()
	defer s.fleet.Keepers[0].KillSandboxes()
	defer s.fleet.Close()
	s.meters = newMeters(s.fleet)
	defer s.meters.close()
	if err := s.work(ctx); err != nil {
		return err
	}
	return s.judge(ctx)
}

// work keeps the sessions at work until everything has been struck often enough.
func (s *chaos) work(ctx context.Context) error {
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
	if s.Servers > 1 {
		if err := s.probe(ctx, working, &running); err != nil {
			over()
			running.Wait()
			return err
		}
	}
	for range s.Runs {
		if sleep.For(ctx, s.interval()) != nil {
			break
		}
		s.strike(ctx)
	}
	s.heal(ctx)
	if len(s.probes) > 0 {
		_ = sleep.For(ctx, longest) // for the last to be served again
	}
	over()
	running.Wait()
	return errors.Join(errs...)
}

func (s *chaos) add(zero, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Findings.Add(zero, format, args...)
}

// players are all scenarios that have a session to judge.
func (s *chaos) players() []*play.Play {
	var all []*play.Play
	for _, a := range s.actors {
		all = append(all, a.Play)
	}
	for _, p := range s.probes {
		all = append(all, p.Play)
	}
	return all
}

// judge holds every session against its promises, and once more after a restart.
func (s *chaos) judge(ctx context.Context) error {
	s.rest(ctx)
	for _, p := range s.players() {
		s.sum.Cases += len(p.Acks())
	}
	s.sum.Pause, s.sum.After = s.longestPause()
	s.sum.Stale, s.sum.Takeovers = s.meters.sum(ctx)
	if s.sum.Pause > longest {
		fmt.Fprintf(s.Out, "storm: without service for %s after %s\n", s.sum.Pause.Round(time.Millisecond), s.sum.After)
	}
	if err := s.fleet.Halt(ctx); err != nil {
		s.add(oracle.Stuck, "a server did not stop: %v", err)
		return nil
	}
	for _, text := range s.fleet.Crashes() {
		s.add(oracle.Stuck, "%s", text)
	}
	if wrong, err := s.fleet.Keepers[0].Check(ctx); err != nil {
		return err
	} else if wrong != "" {
		s.add(oracle.Diverged, "%s", wrong)
	}
	s.fleet.Resume()
	for _, p := range s.players() {
		s.look(ctx, p)
		p.Close()
	}
	return ctx.Err()
}

// rest waits until every session is idle, sends each a new prompt, and judges it a first
// time.
func (s *chaos) rest(ctx context.Context) {
	var running sync.WaitGroup
	for _, p := range s.players() {
		running.Go(func() {
			within, cancel := context.WithTimeout(ctx, play.SettleWithin)
			defer cancel()
			if err := p.Rest(within, "retry"); err != nil {
				s.add(oracle.Stuck, "%s: %v", p.Name, err)
				return
			}
			shown, err := p.Show(ctx)
			if err == nil && shown.Phase != dormouse.PhaseTerminated {
				again, cancel := context.WithTimeout(ctx, play.SettleWithin)
				defer cancel()
				err = p.Prompt(again, "probe", p.Script(rig.Say("still here")))
				if err == nil {
					err = p.Rest(again, "retry")
				}
			}
			if err != nil {
				s.add(oracle.Stuck, "%s takes no prompt: %v", p.Name, err)
				return
			}
			s.look(ctx, p)
		})
	}
	running.Wait()
}

// look judges one session.
func (s *chaos) look(ctx context.Context, p *play.Play) {
	f, _, err := p.Judge(ctx)
	if err != nil {
		s.add(oracle.Stuck, "%s: %v", p.Name, err)
	}
	for zero, found := range f {
		for _, text := range found {
			s.add(zero, "%s %s: %s", p.Name, p.ID, text)
		}
	}
}
