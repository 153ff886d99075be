//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

// At a sandbox's memory limit the kernel of this machine would kill some process of it, and
// with that the sandbox. So while a server watches, the limit of the cgroup is above the
// configured one, and the server is told when usage is above the configured one: it has the
// runner kill the largest processes until usage is below again.
//
// Without a server there is nothing that would do that, so when one closes the watch, the
// kernel enforces the configured limit. How both are done differs between the versions of
// cgroups: see memoryControl.

const (
	memoryStat = "memory.stat"

	// settleWithin is how long the memory of killed processes may take to be freed while
	// others allocate. It is freed piece by piece, with up to stallWithin between.
	settleWithin = 100 * time.Millisecond
	stallWithin  = 2 * time.Second
	// headroom is by how much the limit is raised each time there is no memory left.
	headroom = 32 << 20
	// growth is how much more a sandbox uses if others go on allocating.
	growth = 16 << 20
	// pollEvery is how often a sandbox is looked at that is above its limit because of page
	// cache.
	pollEvery = 50 * time.Millisecond
)

// reserve is how far above its limit a sandbox may be for a moment. A kernel of gVisor
// that is refused memory panics, so it must be enough for what processes that fill memory
// as fast as they can allocate until they are killed: that is half a second if there are
// many.
const reserve = 1 << 30

// maxAbove is how far above its limit a sandbox ever gets.
const maxAbove = 2 * reserve

// memoryControl is what a version of cgroups can do about a sandbox's memory.
type memoryControl interface {
	// begin lets usage be above the limit. From then on the event is raised when it is, at
	// once if it is already.
	begin() (event *os.File, err error)
	// wait waits until the event is raised, or its deadline is over.
	wait(event *os.File) error
	// usage is all memory that is charged, and what of that is not page cache.
	usage() (used, held int64, err error)
	// over is told that held is above the limit, and what used is.
	over(used int64) error
	// below is told that used is below. It reports whether something was changed.
	below() (changed bool, err error)
	// reclaim has the kernel drop page cache until used is below the limit, which held is
	// already, and reports whether that can be done.
	reclaim(held int64) bool
	// end has the kernel enforce the configured limit.
	end() error
}

// MemoryWatch is told by the kernel when a sandbox is above its memory limit.
type MemoryWatch struct {
	memoryControl
	limit    int64
	event    *os.File
	exceeded chan struct{} // holds one: the sandbox is above its limit
	closed   atomic.Bool
}

// WatchMemory lets a sandbox be above its limit and watches it. It returns nil if there is
// no limit.
func (g Group) WatchMemory(limit int64) (_ *MemoryWatch, err error) {
	if limit == 0 {
		return nil, nil //nolint:nilnil // there is nothing to watch
	}
	m := &MemoryWatch{limit: limit, exceeded: make(chan struct{}, 1), memoryControl: &memoryV1{group: g, limit: limit, above: reserve}}
	if g.unified {
		m.memoryControl = &memoryV2{group: g, limit: limit}
	}
	if m.event, err = m.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the sandbox's memory: %w", err), m.end())
	}
	return m, nil
}

// Close has the kernel enforce the limit again. It may be called more than once, and on nil.
func (m *MemoryWatch) Close() error {
	if m == nil || m.closed.Swap(true) {
		return nil
	}
	err := m.end()
	if gone(err) {
		err = nil // the sandbox has ended
	}
	if err = errors.Join(err, m.event.Close()); err != nil {
		return fmt.Errorf("stop watching the sandbox's memory: %w", err)
	}
	return nil
}

// Run sends to Exceeded whenever the sandbox is above its limit, until ctx ends.
func (m *MemoryWatch) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = m.event.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for m.wait(m.event) == nil {
		select {
		case m.exceeded <- struct{}{}:
		default:
		}
	}
}

// Excess waits until it is certain whether the processes of the sandbox hold more than the
// limit, and returns by how much, 0 if they do not.
func (m *MemoryWatch) Excess(ctx context.Context) (int64, error) {
	for {
		used, held, err := m.usage()
		switch {
		case err != nil:
			return 0, err
		case held > m.limit:
			return held - m.limit, m.over(used)
		case used < m.limit:
			if changed, err := m.below(); err != nil || !changed {
				return 0, err
			}
			continue // no event is raised for what was allocated meanwhile
		case m.reclaim(held):
			// The event is raised again when it is above. A sandbox that reads many files
			// is so all the time, and need not be looked at that often.
			return 0, sleep.For(ctx, pollEvery)
		}
		// It is page cache, perhaps being written back. No event is raised if it is
		// processes next.
		if err := sleep.For(ctx, pollEvery); err != nil {
			return 0, err
		}
	}
}

// memoryUsage reads what the sandbox uses from a file, and what of that is not page cache,
// which these names in its statistics count.
func (g Group) memoryUsage(file string, files ...string) (used, held int64, err error) {
	if used, err = g.read(file, ""); err != nil {
		return 0, 0, err
	}
	held = used
	for _, name := range files {
		n, err := g.read(memoryStat, name)
		if err != nil {
			return 0, 0, err
		}
		held -= n
	}
	return used, held, nil
}

// AwaitFreed waits for the memory of killed processes to be freed: they held killed bytes,
// and the sandbox was above its limit by over. A busy machine takes its time, so that is
// waited for until an end, but not while others allocate it.
func (m *MemoryWatch) AwaitFreed(ctx context.Context, over, killed int64, end time.Time) {
	fell := time.Now() // when usage was last at a new low
	if end.Before(fell.Add(settleWithin)) {
		end = fell.Add(settleWithin)
	}
	for before, lowest := int64(0), int64(0); ; {
		_, held, err := m.usage()
		now := time.Now()
		if before == 0 { // they allocated more until they were killed
			before, lowest = max(held, m.limit+over), held
		}
		if held < lowest {
			lowest, fell = held, now
		}
		switch {
		case err != nil, held <= m.limit, now.After(end):
			return
		case now.Sub(fell) > settleWithin && held > lowest+growth:
			return
		case now.Sub(fell) > stallWithin && before-lowest > killed/2: // it is free, as far as can be told
			return
		}
		if sleep.For(ctx, 5*time.Millisecond) != nil {
			return
		}
	}
}

// Limit is the configured limit.
func (m *MemoryWatch) Limit() int64 { return m.limit }

// Exceeded receives when the sandbox is above its limit.
func (m *MemoryWatch) Exceeded() <-chan struct{} { return m.exceeded }

// OOMKills counts how often the kernel has killed in the group.
func (g Group) OOMKills() (int64, error) {
	file := oomControl
	if g.unified {
		file = memoryEvents
	}
	return g.read(file, "oom_kill")
}

// SharedMemory is what processes have as files in memory, which is where a kernel of gVisor
// keeps the memory of its own processes.
func (g Group) SharedMemory() (int64, error) { return g.read(memoryStat, "shmem") }
