//go:build linux

package gvisor

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A weight says who runs next, but not where. If every processor has something to
// do, the kernel of this machine no longer spreads the threads of a command, and of
// the server, over them: they queue up behind each other. So while somebody waits
// for a sandbox, those that nobody waits for keep off some of the processors, and
// run everywhere again when nobody waits for any.

// quietAfter is how long nobody must wait before all run everywhere.
const quietAfter = time.Second

// crowd are the sandboxes that are open here.
type crowd struct {
	cpus    processors
	log     *slog.Logger
	changed chan struct{} // holds one: somebody waits who did not, or no longer does
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	members map[string]*member // guarded by mu; by box
}

type member struct {
	cgroup cgroup
	heed   *attention
	waited bool // guarded by the crowd's mu; somebody waits for it
	away   bool // guarded by the crowd's mu; it keeps off some processors
}

// begin keeps the processors divided, until end is called.
func (c *crowd) begin() {
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the driver
	c.changed, c.stop = make(chan struct{}, 1), stop
	c.running.Go(func() {
		quiet := time.NewTimer(quietAfter)
		defer quiet.Stop()
		for {
			crowded := true
			select {
			case <-ctx.Done():
				return
			case <-c.changed:
			case <-quiet.C:
				crowded = false
			}
			if c.settle(crowded) {
				quiet.Reset(quietAfter)
			}
		}
	})
}

func (c *crowd) end() {
	c.stop()
	c.running.Wait()
}

// settle has everybody where they belong, and reports whether that will change if
// nobody waits for long enough. Once apart, they stay so for a while: who asked for
// one thing often asks for the next.
func (c *crowd) settle(crowded bool) bool {
	c.mu.Lock()
	waited, away := false, false
	boxes := make([]string, 0, len(c.members))
	for box, m := range c.members {
		waited, away = waited || m.waited, away || m.away
		boxes = append(boxes, box)
	}
	c.mu.Unlock()
	apart := c.cpus.rest != "" && (waited || away && crowded)
	for _, box := range boxes {
		c.place(box, apart)
	}
	return apart && !waited
}

// place has one sandbox run everywhere or, if nobody waits for it while they are
// apart, not. Who begins to wait for another meanwhile does not wait for this.
func (c *crowd) place(box string, apart bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[box]; m != nil {
		c.move(m, apart && !m.waited)
	}
}

// move must be called with mu held.
func (c *crowd) move(m *member, away bool) {
	if m.away == away {
		return
	}
	to := c.cpus.all
	if m.away = away; away {
		to = c.cpus.rest
	}
	if err := m.cgroup.runOn(to); err != nil && !ended(err) {
		c.log.Warn("processors of a sandbox not changed", "error", err)
	}
}

// join adds a sandbox, and returns who is to be told when somebody waits for it.
func (c *crowd) join(b box, g cgroup, log *slog.Logger) *attention {
	m := &member{cgroup: g}
	m.heed = newAttention(func(w weight) error {
		c.mu.Lock()
		m.waited = w == usual
		c.mu.Unlock()
		select {
		case c.changed <- struct{}{}:
		default:
		}
		return g.weigh(w)
	}, log)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members == nil {
		c.members = make(map[string]*member)
	}
	if before := c.members[b.id]; before != nil { // who has not let go of it yet
		m.away = before.away
	}
	c.members[b.id] = m
	return m.heed
}

// leave removes a sandbox, which nobody here waits for any more, unless it was
// opened again.
func (c *crowd) leave(b box, heed *attention) {
	heed.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[b.id]; m != nil && m.heed == heed {
		c.move(m, false)
		delete(c.members, b.id)
	}
}

// of is who is told that somebody waits for a sandbox, nil if it is not open here.
func (c *crowd) of(b box) *attention {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[b.id]; m != nil {
		return m.heed
	}
	return nil
}
