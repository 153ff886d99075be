package hibernation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// sleeper is a client whose session sleeps most of the time.
type sleeper struct {
	*play.Play
	trial   *trial
	client  *rig.Client
	n       int
	rand    *rand.Rand
	asked   int // prompts
	starts  int // of writers, whether or not anybody heard of it
	writers []writer
	looks   []look
}

// slack is how far the clock of a sandbox may be off the server's.
const slack = 300 * time.Millisecond

func newSleeper(n *trial, i int) *sleeper {
	return &sleeper{
		trial: n, n: i, rand: rand.New(rand.NewPCG(n.Seed, uint64(1000+i))), client: n.fleet.Client(),
		Play: &play.Play{Keeper: n.keeper, Fleet: n.fleet, Witness: n.witness, Models: n.models, Name: fmt.Sprintf("n%d", i), Slack: slack},
	}
}

// kind is how the session is made: some at once, some with a prompt that has to
// wait for a sandbox, some that fall asleep by themselves.
func (s *sleeper) kind() play.Kind {
	k := play.Kind{Name: s.Name, Create: map[string]any{"warm": s.n%2 == 0}}
	if s.n%3 == 0 {
		k.First = func(*play.Play) string { return s.script() }
	}
	if s.n%5 == 4 {
		k.Create["sleep_after"] = "1s"
	}
	return k
}

// work makes the session and has it wake and sleep until over ends.
func (s *sleeper) work(ctx, over context.Context) error {
	for first := true; over.Err() == nil; first = false {
		err := s.inTurn(over, func() error {
			return s.within(ctx, func(ctx context.Context) error {
				if first {
					if err := s.begin(ctx); err != nil {
						return err
					}
				}
				err := s.bout(ctx)
				if err == nil {
					s.trial.bouts.Add(1)
				}
				return err
			})
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && s.Session == nil:
			return fmt.Errorf("%s: %w", s.Name, err)
		case err != nil:
			s.trial.add(oracle.Stuck, "%s %s: %v", s.Name, s.ID, err)
			return nil
		}
	}
	return nil
}

// inTurn does one thing in a slot, unless the time is over before a slot is free.
func (s *sleeper) inTurn(over context.Context, do func() error) error {
	select {
	case s.trial.slots <- struct{}{}:
	case <-over.Done():
		return nil
	}
	defer func() { <-s.trial.slots }()
	if over.Err() != nil { // both were so
		return nil
	}
	return do()
}

var errPatience = errors.New("that took too long")

// within bounds what a session is asked.
func (s *sleeper) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	return do(ctx)
}

// begin makes the session, whose follower outlives what is asked of it.
func (s *sleeper) begin(ctx context.Context) error {
	return s.Start(context.WithoutCancel(ctx), s.client, s.kind(), s.n%2 == 0)
}

// script is a prompt that has a command run.
func (s *sleeper) script() string {
	return s.Script(rig.Bash(s.Marks("0.05")), rig.Say("done"))
}

func (s *sleeper) prompt(ctx context.Context) error {
	s.asked++
	return s.Prompt(ctx, fmt.Sprintf("p%d", s.asked), s.script())
}

// bout wakes the session in some way, does a few things, and hibernates it.
func (s *sleeper) bout(ctx context.Context) error {
	s.trial.moves("wake")
	var err error
	switch s.rand.IntN(5) {
	case 0:
		err = s.Wake(ctx)
	case 1:
		err = s.prompt(ctx)
	case 2:
		err = s.ask(ctx)
	case 3:
		err = s.look(ctx)
	case 4: // two at once, and whatever comes first wakes it
		var waking sync.WaitGroup
		var other error
		waking.Go(func() { other = s.Wake(ctx) })
		err = s.prompt(ctx)
		waking.Wait()
		err = errors.Join(err, other)
	}
	for range 1 + s.rand.IntN(3) {
		if err != nil {
			return err
		}
		err = s.act(ctx)
	}
	if err == nil {
		err = s.hibernate(ctx, s.rand.IntN(3) == 0)
	}
	return err
}

// act is one of the things that people do.
func (s *sleeper) act(ctx context.Context) error {
	switch n := s.rand.IntN(40); {
	case n == 0:
		return s.killRunner(ctx)
	case n < 14:
		return s.look(ctx)
	case n < 22:
		return s.ask(ctx)
	case n < 30:
		return s.prompt(ctx)
	case n < 34:
		return s.Wake(ctx) // it is awake, or about to be
	}
	return sleep.For(ctx, time.Duration(s.rand.IntN(800))*time.Millisecond)
}

// ask has a person run a command, and now and then asks for it again.
func (s *sleeper) ask(ctx context.Context) error {
	a := s.Asked(fmt.Sprintf("0.%02d", s.rand.IntN(20)))
	for range 1 + s.rand.IntN(2) {
		if _, err := s.Ask(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// killRunner has a command kill the first process of its sandbox, and with it
// everything else.
func (s *sleeper) killRunner(ctx context.Context) error {
	s.trial.count(func(sum *Summary) { sum.Struck++ })
	a := s.Asked("0")
	a.Command = "kill -9 1; sleep 10; " + a.Command
	_, err := s.Ask(ctx, a)
	return err
}

// hibernate hibernates the session. If something wakes it meanwhile, it is hibernated again.
func (s *sleeper) hibernate(ctx context.Context, disturb bool) error {
	s.trial.moves("hibernate")
	if !disturb {
		return s.Asleep(ctx)
	}
	if shown, err := s.Idle(ctx); err != nil || shown.Sandbox.Phase == "cold" {
		return err
	}
	if err := s.Hibernate(ctx); err != nil {
		return err
	}
	if err := sleep.For(ctx, time.Duration(s.rand.IntN(250))*time.Millisecond); err != nil {
		return err
	}
	act := s.prompt
	if s.rand.IntN(2) == 0 {
		act = s.ask
	}
	if err := act(ctx); err != nil {
		return err
	}
	return s.hibernate(ctx, false)
}

// mustRun runs a command to its end. If it is unknown whether the command ran, it is sent
// once more under another id.
func (s *sleeper) mustRun(ctx context.Context, command string) (rig.Exec, error) {
	const tries = 20
	for range tries {
		a := s.Asked("0")
		result, err := s.Ask(ctx, rig.Asked{ClientID: a.ClientID, Command: command})
		if err != nil || result.Ran() {
			return result, err
		}
	}
	return rig.Exec{}, errors.New("no command was run to its end")
}
