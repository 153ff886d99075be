package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

// calm waits until the machine has next to nothing to do, so that what one side
// left to do in the background is not in the way of the other: opencode works on
// for seconds after its turns have ended. Where that never comes, because others
// use the machine, it says so and is not waited for.
func (b *bench) calm(ctx context.Context) error {
	const look, patience, busy = 500 * time.Millisecond, time.Minute, 0.1
	before, err := spent()
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		if err := sleep.For(ctx, look); err != nil {
			return err
		}
		now, err := spent()
		if err != nil {
			return err
		}
		share := 1 - float64(now.idle-before.idle)/float64(max(now.all-before.all, 1))
		if share < busy {
			return nil
		}
		if time.Since(began) > patience {
			fmt.Fprintf(os.Stderr, "bench: the machine is %.0f%% busy with something else\n", 100*share)
			return nil
		}
		before = now
	}
}

// ticks is the time of all processors since the machine began.
type ticks struct{ idle, all uint64 }

func spent() (ticks, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ticks{}, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	var user, nice, system, idle, wait, irq, soft, stolen uint64
	if _, err := fmt.Sscanf(first, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft, &stolen); err != nil {
		return ticks{}, errors.Join(errors.New("read /proc/stat"), err)
	}
	return ticks{idle: idle + wait, all: user + nice + system + idle + wait + irq + soft + stolen}, nil
}
