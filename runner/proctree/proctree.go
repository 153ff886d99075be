// Package proctree finds processes by what they carry and ends them together
// with everything they started, so that nothing is left which could still act.
package proctree

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Process is a living process as the system shows it.
type Process struct {
	PID     int
	Parent  int
	Session int
	// Zombie says that the process is over and only waits to be reaped.
	Zombie bool

	start uint64 // tells a process from a later one with its pid
}

// Born is when the process was started, in hundredths of a second; see TicksAt.
func (p Process) Born() uint64 { return p.start }

// Find returns the living processes that seed picks, and all they started. The
// caller's own process is never among them.
func Find(seed func(Process) bool) ([]Process, error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	children := make(map[int][]Process)
	var found []Process
	taken := map[int]bool{self: true}
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
		if !taken[p.PID] && !p.Zombie && seed(p) {
			taken[p.PID] = true
			found = append(found, p)
		}
	}
	for i := 0; i < len(found); i++ {
		for _, c := range children[found[i].PID] {
			if !taken[c.PID] && !c.Zombie {
				taken[c.PID] = true
				found = append(found, c)
			}
		}
	}
	return found, nil
}

// End ends the processes that seed picks and all they started. It asks them
// first and gives them grace to comply; then it kills. It returns nil only once
// none is left.
func End(ctx context.Context, seed func(Process) bool, grace time.Duration) error {
	if err := ask(ctx, seed, grace); err != nil {
		return err
	}
	// A process seen while it changes programs shows no environment for an
	// instant, so one look that finds nothing is not enough.
	for clean, pause := 0, time.Millisecond; clean < 2; pause = min(2*pause, 50*time.Millisecond) {
		found, err := freeze(seed)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			clean++
		} else {
			clean = 0
		}
		for _, p := range found {
			p.signal(unix.SIGKILL)
		}
		if err := sleep.For(ctx, pause); err != nil && clean < 2 {
			return fmt.Errorf("end %d processes: %w", len(found), err)
		}
	}
	return nil
}

func ask(ctx context.Context, seed func(Process) bool, grace time.Duration) error {
	if grace <= 0 {
		return nil
	}
	found, err := Find(seed)
	if err != nil {
		return err
	}
	for _, p := range found {
		p.signal(unix.SIGTERM)
		p.signal(unix.SIGCONT) // a stopped process hears nothing
	}
	deadline := time.Now().Add(grace)
	for pause := time.Millisecond; len(found) > 0 && time.Now().Before(deadline); pause = min(2*pause, 20*time.Millisecond) {
		if err := sleep.For(ctx, pause); err != nil {
			return fmt.Errorf("end %d processes: %w", len(found), err)
		}
		if found, err = Find(seed); err != nil {
			return err
		}
	}
	return nil
}

// freeze stops what seed picks before any of it is killed: a stopped parent
// cannot have another child, and its children still show whose they are.
func freeze(seed func(Process) bool) ([]Process, error) {
	stopped := make(map[Process]bool)
	for {
		found, err := Find(seed)
		if err != nil {
			return nil, err
		}
		fresh := false
		for _, p := range found {
			if !stopped[p] {
				stopped[p], fresh = true, true
				p.signal(unix.SIGSTOP)
			}
		}
		if !fresh {
			return found, nil
		}
	}
}
