package monkey

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// probe is a client that repeats the cheapest request: how long it waits is how long the
// service is down. It stays with one server as long as that answers, so that each has
// sessions to lose.
type probe struct {
	*play.Play
	home  *rig.Keeper
	turns []turn
}

// turn is one that a probe had, as it saw it.
type turn struct{ sent, done time.Time }

// perServer is how many probes each server has.
const perServer = 2

// probe makes the probes and keeps them asking until over ends.
func (s *chaos) probe(ctx, over context.Context, running *sync.WaitGroup) error {
	for i := range s.Servers * perServer {
		p := &probe{home: s.fleet.Keepers[i%s.Servers], Play: &play.Play{
			Keeper: s.fleet.Keepers[0], Fleet: s.fleet, Witness: s.witness, Models: s.models, Name: fmt.Sprintf("probe%d", i), Slack: slack,
		}}
		client := s.fleet.At(p.home).Client()
		client.Patience = time.Second / 2
		if err := p.Start(ctx, client, play.Kind{Name: p.Name}, true); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		s.probes = append(s.probes, p)
	}
	for _, p := range s.probes {
		running.Go(func() { p.ask(ctx, over) })
	}
	return nil
}

// ask has one turn after the other.
func (p *probe) ask(ctx, over context.Context) {
	seen := 0
	for n := 0; over.Err() == nil; n++ {
		t := turn{sent: time.Now()}
		if err := p.Prompt(ctx, fmt.Sprintf("p%d", n), p.Script(rig.Step{"text": "pong", "stream": false})); err != nil {
			return // the test is aborted; what was accepted is judged
		}
		var err error
		if seen, err = p.Follower.Next(ctx, seen, dormouse.SessionStatusIdle); err != nil {
			return
		}
		t.done = time.Now()
		p.turns = append(p.turns, t)
		if n%homing == homing-1 && p.homesick(ctx) {
			_ = sleep.For(ctx, 2*dropAfter) // the server that owns the session releases it
		}
	}
}

// homing is how often a probe looks whether its session is where it belongs.
const homing = 20

func (p *probe) homesick(ctx context.Context) bool {
	owners, err := p.Keeper.Owners(ctx)
	return err == nil && p.Fleet.Named(owners[p.ID]) != p.home
}

// longestPause is the longest time between a fault and the end of the first turn
// that a session of the struck server began after it. A session that is struck
// again meanwhile is waited for from then on.
func (s *chaos) longestPause() (longest time.Duration, after string) {
	for _, p := range s.probes {
		for i, f := range s.faults {
			if !f.hit[p.ID] {
				continue
			}
			served, err := p.servedAfter(f.at)
			if err != nil {
				served = time.Now()
			}
			again := false
			for _, next := range s.faults[i+1:] {
				again = again || next.hit[p.ID] && next.at.Before(served)
			}
			if d := served.Sub(f.at); !again && d > longest {
				longest, after = d, f.what
			}
		}
	}
	return longest, after
}

var errUnserved = errors.New("no turn has ended since")

func (p *probe) servedAfter(at time.Time) (time.Time, error) {
	for _, t := range p.turns {
		if !t.sent.Before(at) {
			return t.done, nil
		}
	}
	return time.Time{}, errUnserved
}
