//go:build linux

package cgroup

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A weight decides which thread runs next, but not where. If every CPU is busy, the kernel
// no longer spreads the threads of a command, and of the server, over them: they queue up
// behind each other. So while a client waits for a sandbox, the sandboxes without a
// waiting client are kept off some of the CPUs. They may use all of them again when no
// client waits for any.

// quietAfter is how long no client must wait before all sandboxes may use all CPUs.
const quietAfter = time.Second

// Scheduler divides the CPUs of this machine among the sandboxes of an instance.
type Scheduler struct {
	instance string
	cpus     cpus
	log      *slog.Logger
	changed  chan struct{} // holds one: a client began or ceased to wait
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	members map[string]*member // guarded by mu; by sandbox
}

// member is a sandbox that this server has open.
type member struct {
	group    Group
	priority *Priority
	waited   bool // guarded by the scheduler's mu; a client waits for it
	confined bool // guarded by the scheduler's mu; it is kept off some CPUs
}

// NewScheduler finds out which CPUs there are and whether sandboxes can be confined to
// some of them. It does nothing until Start is called.
func NewScheduler(instance string, log *slog.Logger) *Scheduler {
	c, err := allowedCPUs()
	if err == nil {
		err = probeCPUs(instance, c)
	}
	if err != nil {
		log.Warn("busy sandboxes may slow others down: their processors cannot be chosen", "error", err)
		c = cpus{}
	}
	return &Scheduler{instance: instance, cpus: c, log: log, changed: make(chan struct{}, 1), members: make(map[string]*member)}
}

// Group is the control group of a sandbox, whether or not it exists.
func (s *Scheduler) Group(id string) Group { return newGroup(s.instance, id, s.cpus) }

// Sandboxes are those of the instance that have a group in some hierarchy.
func (s *Scheduler) Sandboxes() ([]string, error) {
	all := s.Group("sbx_*")
	all.cpuset = true // whether or not this server could create it
	found := make(map[string]bool)
	for _, pattern := range all.dirs() {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("list the groups of sandboxes: %w", err)
		}
		for _, dir := range dirs {
			found[dir[strings.LastIndex(dir, "sbx_"):]] = true
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// RemoveParents removes what all groups of the instance had in common, once there are
// none.
func (s *Scheduler) RemoveParents() { s.Group("none").removeParents() }

// Start keeps the CPUs divided until Close is called.
func (s *Scheduler) Start() {
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the driver
	s.stop = stop
	s.running.Go(func() {
		quiet := time.NewTimer(quietAfter)
		defer quiet.Stop()
		for {
			busy := true
			select {
			case <-ctx.Done():
				return
			case <-s.changed:
			case <-quiet.C:
				busy = false
			}
			if s.divide(busy) {
				quiet.Reset(quietAfter)
			}
		}
	})
}

// Close stops what Start has started.
func (s *Scheduler) Close() {
	s.stop()
	s.running.Wait()
}

// divide confines the sandboxes that should be confined, and no others. It reports whether
// that will change if no client waits for long enough. Once divided, the CPUs stay so for
// a while: a request is often followed by the next.
func (s *Scheduler) divide(busy bool) bool {
	s.mu.Lock()
	waited, confined := false, false
	ids := make([]string, 0, len(s.members))
	for id, m := range s.members {
		waited, confined = waited || m.waited, confined || m.confined
		ids = append(ids, id)
	}
	s.mu.Unlock()
	apart := s.cpus.background != "" && (waited || confined && busy)
	for _, id := range ids {
		s.place(id, apart)
	}
	return apart && !waited
}

// place confines one sandbox if no client waits for it while the CPUs are divided. The
// lock is taken for one at a time, so that a client that begins to wait for another
// sandbox is not delayed.
func (s *Scheduler) place(id string, apart bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[id]; m != nil {
		s.confine(m, apart && !m.waited)
	}
}

// confine must be called with mu held.
func (s *Scheduler) confine(m *member, confined bool) {
	if m.confined == confined {
		return
	}
	to := s.cpus.all
	if m.confined = confined; confined {
		to = s.cpus.background
	}
	if err := m.group.setCPUs(to); err != nil && !gone(err) {
		s.log.Warn("processors of a sandbox not changed", "error", err)
	}
}

// Join adds a sandbox, and returns its Priority, which is told when a client waits for it.
func (s *Scheduler) Join(id string, log *slog.Logger) *Priority {
	m := &member{group: s.Group(id)}
	m.priority = newPriority(func(w Weight) error {
		s.mu.Lock()
		m.waited = w == Foreground
		s.mu.Unlock()
		select {
		case s.changed <- struct{}{}:
		default:
		}
		return m.group.SetWeight(w)
	}, log)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.members[id]; before != nil { // another holder still has it open
		m.confined = before.confined
	}
	s.members[id] = m
	return m.priority
}

// Leave removes a sandbox, unless it was opened again.
func (s *Scheduler) Leave(id string, p *Priority) {
	p.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[id]; m != nil && m.priority == p {
		s.confine(m, false)
		delete(s.members, id)
	}
}

// Raise gives a sandbox foreground priority until release is called, whether or not it is
// open here: this server does something to it for which it needs CPU of its own.
func (s *Scheduler) Raise(id string) (release func()) {
	if p := s.priority(id); p != nil {
		return p.Hold()
	}
	p := newPriority(s.Group(id).SetWeight, s.log)
	p.Hold()
	return p.close
}

// priority is nil if the sandbox is not open here.
func (s *Scheduler) priority(id string) *Priority {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[id]; m != nil {
		return m.priority
	}
	return nil
}
