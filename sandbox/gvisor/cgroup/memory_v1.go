//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Version 1 of cgroups has one limit, and an event at any usage. At the limit processes
// that want memory wait, since the OOM killer is disabled while a server watches. The
// runner may be one of them, so the limit is raised then.

const (
	memoryLimit = "memory.limit_in_bytes"
	memoryUsage = "memory.usage_in_bytes"
	oomControl  = "memory.oom_control"
)

// memoryV1 controls the memory of a sandbox with version 1 of cgroups.
type memoryV1 struct {
	group Group
	limit int64

	mu    sync.Mutex
	above int64 // guarded by mu; how far above the configured limit the cgroup's limit is
}

func (m *memoryV1) begin() (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	event := os.NewFile(uintptr(fd), "memory")
	// If usage is above the limit already, the event is raised at once.
	err = errors.Join(m.subscribe(fd, oomControl, ""), m.subscribe(fd, memoryUsage, strconv.FormatInt(m.limit, 10)), m.group.set("memory", oomControl, "1"))
	if err == nil {
		err = m.setLimit()
	}
	if err != nil {
		return nil, errors.Join(err, event.Close())
	}
	return event, nil
}

// subscribe has changes of a file of the cgroup raise the event.
func (m *memoryV1) subscribe(event int, file, argument string) error {
	f, err := os.Open(filepath.Join(m.group.dir("memory"), file))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return m.group.set("memory", "cgroup.event_control", fmt.Sprintf("%d %d %s", event, f.Fd(), argument))
}

func (m *memoryV1) wait(event *os.File) error {
	var count [8]byte
	if _, err := event.Read(count[:]); err != nil {
		return err
	}
	return m.raise()
}

// raise raises the limit if processes wait at it, up to maxAbove.
func (m *memoryV1) raise() error {
	if out, err := m.group.read(oomControl, "under_oom"); err != nil || out == 0 {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.above = min(m.above+headroom, maxAbove)
	return m.setLimit()
}

func (m *memoryV1) usage() (used, held int64, err error) {
	return m.group.memoryUsage(memoryUsage, "total_active_file", "total_inactive_file")
}

func (m *memoryV1) over(int64) error { return nil }

// below takes back what raise has given.
func (m *memoryV1) below() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.above == reserve {
		return false, nil
	}
	m.above = reserve
	return true, m.setLimit()
}

// reclaim lowers the limit for an instant, which has the kernel drop page cache. There must
// be much of it: gVisor must still find the memory it needs at that instant.
func (m *memoryV1) reclaim(held int64) bool {
	if held >= m.limit-m.limit/8 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.allow(m.limit-m.limit/16) != nil {
		return false
	}
	m.above = reserve
	return m.setLimit() == nil
}

func (m *memoryV1) end() error {
	err := m.group.set("memory", oomControl, "0")
	_ = m.allow(m.limit) // refused if usage is above
	return err
}

// setLimit sets the limit of the cgroup. Allocations that the kernel cannot refuse are
// charged beyond any limit, so usage may be above the new one, which the kernel refuses
// then; the limit is raised until it is not.
func (m *memoryV1) setLimit() error {
	for {
		err := m.allow(m.limit + m.above)
		if !errors.Is(err, unix.EBUSY) || m.above == maxAbove {
			return err
		}
		m.above = min(m.above+headroom, maxAbove)
	}
}

func (m *memoryV1) allow(bytes int64) error {
	return m.group.set("memory", memoryLimit, strconv.FormatInt(bytes, 10))
}
