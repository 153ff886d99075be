//go:build linux

package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// In the first version of cgroups there is one limit, and an event at any usage.
// Whoever wants memory when there is none left at all waits, for the killer of the
// kernel is disarmed while a server watches. Others may have taken what the runner
// needs then, so the sandbox is given more.

const (
	memoryLimit = "memory.limit_in_bytes"
	memoryUsage = "memory.usage_in_bytes"
	oomControl  = "memory.oom_control"
)

// memoryV1 is the memory of a sandbox in the first version of cgroups.
type memoryV1 struct {
	cgroup cgroup
	limit  int64

	mu    sync.Mutex
	above int64 // guarded by mu; how far above its limit the sandbox may be
}

func (m *memoryV1) begin() (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	event := os.NewFile(uintptr(fd), "memory")
	// One that is above its limit already says so at once.
	err = errors.Join(m.tell(fd, oomControl, ""), m.tell(fd, memoryUsage, strconv.FormatInt(m.limit, 10)), m.cgroup.set("memory", oomControl, "1"))
	if err == nil {
		err = m.grant()
	}
	if err != nil {
		return nil, errors.Join(err, event.Close())
	}
	return event, nil
}

// tell has the event raised by a file of the cgroup.
func (m *memoryV1) tell(event int, file, argument string) error {
	f, err := os.Open(filepath.Join(m.cgroup.dir("memory"), file))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return m.cgroup.set("memory", "cgroup.event_control", fmt.Sprintf("%d %d %s", event, f.Fd(), argument))
}

func (m *memoryV1) wait(event *os.File) error {
	var count [8]byte
	if _, err := event.Read(count[:]); err != nil {
		return err
	}
	return m.raise()
}

// raise gives the sandbox more if everything in it waits. There is an end to it.
func (m *memoryV1) raise() error {
	if out, err := m.cgroup.read(oomControl, "under_oom"); err != nil || out == 0 {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.above = min(m.above+headroom, maxAbove)
	return m.grant()
}

func (m *memoryV1) usage() (used, held int64, err error) {
	return m.cgroup.memoryUsage(memoryUsage, "total_active_file", "total_inactive_file")
}

func (m *memoryV1) over(int64) error { return nil }

// below takes back what the sandbox got when there was nothing left.
func (m *memoryV1) below() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.above == reserve {
		return false, nil
	}
	m.above = reserve
	return true, m.grant()
}

// forget needs much to forget: at the instant when the sandbox may have no more,
// the kernel in it must still find what it needs.
func (m *memoryV1) forget(held int64) bool {
	if held >= m.limit-m.limit/8 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.allow(m.limit-m.limit/16) != nil {
		return false
	}
	m.above = reserve
	return m.grant() == nil
}

func (m *memoryV1) end() error {
	err := m.cgroup.set("memory", oomControl, "0")
	_ = m.allow(m.limit) // one that is above may stay there
	return err
}

// grant lets the sandbox be as far above its limit as it may. What the kernel of
// this machine cannot refuse is charged beyond any limit, so one that has nothing
// left may hold more than it was given; then it gets what it holds.
func (m *memoryV1) grant() error {
	for {
		err := m.allow(m.limit + m.above)
		if !errors.Is(err, unix.EBUSY) || m.above == maxAbove {
			return err
		}
		m.above = min(m.above+headroom, maxAbove)
	}
}

func (m *memoryV1) allow(bytes int64) error {
	return m.cgroup.set("memory", memoryLimit, strconv.FormatInt(bytes, 10))
}
