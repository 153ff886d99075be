//go:build linux

package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// In the second version of cgroups there are two limits. At the hard one, max, the
// kernel of this machine ends the sandbox, and nobody can disarm it. At the soft
// one, high, it counts an event, and slows down whoever takes more, the more the
// further above the sandbox is.
//
// So while a server watches, the soft limit is what the sandbox may have. As soon
// as it holds more, the soft limit goes up: the runner that is to kill must not be
// slow, nor the kernel of gVisor. It still slows down processes that take memory
// faster than they are killed, long before the hard limit. Without a server there
// is no soft limit, for a sandbox would be slow for ever, and the hard one is what
// it may have.

const (
	memoryMax     = "memory.max"
	memoryHigh    = "memory.high"
	memorySwap    = "memory.swap.max"
	memoryCurrent = "memory.current"
	memoryEvents  = "memory.events"

	unlimited = "max"
)

// memoryV2 is the memory of a sandbox in the second version of cgroups.
type memoryV2 struct {
	cgroup cgroup
	limit  int64
	high   int64 // where the soft limit is while the sandbox holds more, 0 if it does not
	seen   int64 // how many events there were
}

func (m *memoryV2) begin() (_ *os.File, err error) {
	event, err := os.Open(filepath.Join(m.cgroup.dir("memory"), memoryEvents))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, event.Close())
		}
	}()
	if err := event.SetReadDeadline(time.Time{}); err != nil { // it could not be polled
		return nil, err
	}
	if m.seen, err = m.events(); err != nil {
		return nil, err
	}
	// The soft limit of one that is above already must not be below, for a moment.
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
		m.seen = -1 // it may ask for nothing more, and cause no event
	}
	return event, nil
}

// wait waits until there are more events. The kernel of this machine wakes those
// who poll the file when it changes; the file itself can always be read.
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

func (m *memoryV2) events() (int64, error) { return m.cgroup.read(memoryEvents, "high") }

func (m *memoryV2) usage() (used, held int64, err error) {
	return m.cgroup.memoryUsage(memoryCurrent, "active_file", "inactive_file")
}

// over lets the sandbox have the reserve, and more if that is used up. Above it
// processes are slow, so that they cannot reach the hard limit before they are
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

// forget leaves it to the kernel of this machine, which has a sandbox that is
// above the soft limit forget files first.
func (m *memoryV2) forget(int64) bool {
	_, err := m.below()
	return err == nil
}

// end leaves a sandbox that is above a little more than it has: at less it would be
// ended at once.
func (m *memoryV2) end() error {
	if err := m.cgroup.set("memory", memoryHigh, unlimited); err != nil {
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
	return m.cgroup.set("memory", file, strconv.FormatInt(bytes, 10))
}
