package monkey

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// fault is something that was done, and the sessions whose server it was done to.
type fault struct {
	at   time.Time
	what string
	hit  map[dormouse.SessionID]bool
}

// interval is the time until the next strike.
func (s *chaos) interval() time.Duration {
	most := 700
	if s.Servers > 1 {
		most = 2500
	}
	return time.Duration(30+s.rand.IntN(most)) * time.Millisecond
}

// strike does something to a server, or to two; to a sandbox; to the database.
func (s *chaos) strike(ctx context.Context) {
	n := s.rand.IntN(20)
	switch {
	case n < 3:
		s.killRunner()
		return
	case n == 3 && s.Servers > 1:
		s.restart(ctx)
		return
	}
	targets := s.targets(1)
	if s.Servers > 1 && s.rand.IntN(5) == 0 {
		targets = s.targets(2)
	}
	for _, t := range targets {
		s.hit(ctx, t, n)
	}
	if s.Verbose {
		fmt.Fprintf(s.Out, "storm: %d kills, %d stops\n", s.sum.Kills, s.sum.Stops)
	}
}

// targets draws servers to strike, but never the last one that moves.
func (s *chaos) targets(n int) []int {
	all := s.rand.Perm(s.Servers)
	if s.Servers == 1 {
		return all
	}
	var moving []int
	for _, i := range all {
		if l := s.life(i); l != nil && !l.Frozen() {
			moving = append(moving, i)
		}
	}
	return moving[:min(n, max(len(moving)-1, 0))]
}

// life is the process of a server, nil if there is none now.
func (s *chaos) life(i int) *rig.Life {
	now, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	l, _ := s.fleet.Keepers[i].Live(now) // none is an answer too
	return l
}

// hit kills a server in one of several ways, stops it, or freezes it.
func (s *chaos) hit(ctx context.Context, i, how int) {
	wait := time.Duration(s.rand.IntN(60)) * time.Millisecond // drawn in any case, so that a seed is a seed
	frozen := time.Duration(s.rand.Float64() * 2.5 * float64(lease))
	l, err := s.fleet.Keepers[i].Live(ctx)
	if err != nil {
		return
	}
	switch {
	case s.Servers > 1 && how < 11:
		s.note(ctx, fmt.Sprintf("server-%d was frozen for %s", i, frozen.Round(time.Millisecond)), i)
		s.sum.Stops++
		thawed := l.FreezeFor(frozen)
		s.thawing.Go(func() { <-thawed })
	case how < 15:
		s.kill(ctx, i, l)
	case how == 15:
		s.killRunner()
		s.kill(ctx, i, l)
	case how == 16:
		s.kill(ctx, i, l)
		s.killRunner()
	case how == 17:
		l.Signal(syscall.SIGTERM)
		_ = sleep.For(ctx, wait/2)
		s.kill(ctx, i, l)
	case how == 18:
		// Twice in a row: the second while the first is recovered from.
		s.kill(ctx, i, l)
		_ = sleep.For(ctx, wait)
		if next, err := s.fleet.Keepers[i].Live(ctx); err == nil {
			s.kill(ctx, i, next)
		}
	default:
		s.note(ctx, fmt.Sprintf("server-%d was stopped", i), i)
		if err := l.Stop(); err != nil && !l.Killed() {
			s.add(oracle.Stuck, "server-%d did not stop: %v", i, err)
		}
	}
}

func (s *chaos) kill(ctx context.Context, i int, l *rig.Life) {
	s.note(ctx, fmt.Sprintf("server-%d was killed", i), i)
	s.meters.read(ctx, l)
	l.Kill()
	s.sum.Kills++
}

func (s *chaos) killRunner() {
	if pids := s.fleet.Keepers[0].Runners(); len(pids) > 0 {
		_ = syscall.Kill(pids[s.rand.IntN(len(pids))], syscall.SIGKILL)
		s.sum.Kills++
	}
}

// restart has the database crash and come back.
func (s *chaos) restart(ctx context.Context) {
	all := make([]int, s.Servers)
	for i := range all {
		all[i] = i
	}
	s.note(ctx, "the database was restarted", all...)
	if err := s.stores.Restart(ctx); err != nil {
		s.add(oracle.Stuck, "%v", err)
	}
	s.sum.Restarts++
}

// note records what is about to be done to servers, and whose sessions they have.
func (s *chaos) note(ctx context.Context, what string, servers ...int) {
	if s.Servers == 1 {
		return
	}
	f := fault{what: what, hit: make(map[dormouse.SessionID]bool)}
	owners, err := s.fleet.Keepers[0].Owners(ctx)
	if err != nil {
		s.add(oracle.Stuck, "the database does not say who has what: %v", err)
	}
	for _, i := range servers {
		for id, owner := range owners {
			if s.fleet.Named(owner) == s.fleet.Keepers[i] {
				f.hit[id] = true
			}
		}
	}
	f.at = time.Now()
	s.faults = append(s.faults, f)
	if s.Verbose {
		fmt.Fprintf(s.Out, "storm: %s with %d sessions\n", what, len(f.hit))
	}
}

// heal waits until every server moves again.
func (s *chaos) heal(ctx context.Context) {
	s.thawing.Wait()
	for i, k := range s.fleet.Keepers {
		if _, err := k.Live(ctx); err != nil {
			s.add(oracle.Stuck, "server-%d is not there: %v", i, err)
		}
	}
}
