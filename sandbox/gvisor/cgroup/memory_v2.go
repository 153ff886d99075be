//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Version 2 of cgroups has two limits. At the hard one, max, the kernel kills the sandbox,
// and that cannot be disabled. At the soft one, high, it counts an event, and throttles
// processes that allocate, the more the further above usage is.
//
// So while a server watches, the soft limit is the configured one. As soon as usage is
// above, the soft limit goes up: neither the runner that is to kill nor the kernel of
// gVisor may be throttled. It still throttles processes that allocate faster than they are
// killed, long before the hard limit. Without a server there is no soft limit, since a
// sandbox would be slow for ever, and the hard one is the configured one.

const (
	memoryMax     = "memory.max"
	memoryHigh    = "memory.high"
	memorySwap    = "memory.swap.max"
	memoryCurrent = "memory.current"
	memoryEvents  = "memory.events"

	unlimited = "max"
)

// memoryV2 controls the memory of a sandbox with version 2 of cgroups.
type memoryV2 struct {
	group Group
	limit int64
	high  int64 // the soft limit while usage is above the configured one, else 0
	seen  int64 // how many events there were
}

func (m *memoryV2) begin() (_ *os.File, err error) {
	event, err := os.Open(filepath.Join(m.group.dir("memory"), memoryEvents))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, event.Close())
		}
	}()
	if err := event.SetReadDeadline(time.Time{}); err != nil { // fails if the file cannot be polled
		return nil, err
	}
	if m.seen, err = m.events(); err != nil {
		return nil, err
	}
	// If usage is above already, the soft limit must not be below it even for a moment.
	used, held, err := m.usage()
	if err == nil {
		err = m.set(memoryMax, m.limit+maxAbove)
	}
	switch {
	case err != nil:
	case held > m.limit:
		err = m.over(used)
	default:
		err = m.set(memoryHigh, m.limit)
	}
	if err != nil {
		return nil, err
	}
	if used >= m.limit {
		m.seen = -1 // it may allocate nothing more, and cause no event
	}
	return event, nil
}

// wait waits until there are more events. The kernel wakes pollers of the file when it
// changes; the file itself can always be read.
func (m *memoryV2) wait(event *os.File) error {
	conn, err := event.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Read(func(uintptr) bool {
		var n int64
		if n, failed = m.events(); failed != nil || n != m.seen {
			m.seen = n
			return true
		}
		return false
	})
	return errors.Join(err, failed)
}

func (m *memoryV2) events() (int64, error) { return m.group.read(memoryEvents, "high") }

func (m *memoryV2) usage() (used, held int64, err error) {
	return m.group.memoryUsage(memoryCurrent, "active_file", "inactive_file")
}

// over raises the soft limit by the reserve, and further if that is used up. Above it
// processes are throttled, so that they cannot reach the hard limit before they are
// killed.
func (m *memoryV2) over(used int64) error {
	high := max(m.limit+reserve, min(used+headroom, m.limit+maxAbove-headroom))
	if m.high >= high {
		return nil
	}
	m.high = high
	return m.set(memoryHigh, high)
}

func (m *memoryV2) below() (bool, error) {
	if m.high == 0 {
		return false, nil
	}
	m.high = 0
	return true, m.set(memoryHigh, m.limit)
}

// reclaim leaves it to the kernel, which drops page cache first when usage is above the soft
// limit.
func (m *memoryV2) reclaim(int64) bool {
	_, err := m.below()
	return err == nil
}

// end leaves a sandbox that is above its limit a little more than it uses: at less it
// would be killed at once.
func (m *memoryV2) end() error {
	if err := m.group.set("memory", memoryHigh, unlimited); err != nil {
		return err
	}
	used, held, err := m.usage()
	if err != nil {
		return err
	}
	if held < m.limit {
		return m.set(memoryMax, m.limit)
	}
	return m.set(memoryMax, min(used+headroom, m.limit+maxAbove))
}

func (m *memoryV2) set(file string, bytes int64) error {
	return m.group.set("memory", file, strconv.FormatInt(bytes, 10))
}
