//go:build linux

package gvisor_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// memory is the directory of a sandbox's memory limit, of either version.
type memory struct {
	dir   string
	first bool
}

// memoryOf finds that of the only sandbox.
func memoryOf(t *testing.T, h *fixture) memory {
	t.Helper()
	m := memory{first: true}
	pattern := filepath.Join("/sys/fs/cgroup/memory/dormouse", instance(h.dir), "sbx_*")
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		m.first, pattern = false, filepath.Join("/sys/fs/cgroup", "dormouse-"+instance(h.dir)+"-sbx_*")
	}
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	m.dir = found[0]
	return m
}

func (m memory) used(t *testing.T) int64 {
	t.Helper()
	if m.first {
		return m.number(t, "memory.usage_in_bytes")
	}
	return m.number(t, "memory.current")
}

// mustEndAtTheLimit wants it to be as it is without a server: the kernel of this
// machine ends what has no memory left.
func (m memory) mustEndAtTheLimit(t *testing.T) {
	t.Helper()
	if m.first {
		if got := m.value(t, "memory.oom_control", "oom_kill_disable"); got != "0" {
			t.Errorf("without a server oom_kill_disable is %s", got)
		}
		return
	}
	if high, most := strings.TrimSpace(read(t, m.file("memory.high"))), m.number(t, "memory.max"); high != "max" || most != small.Memory {
		t.Errorf("without a server memory.high is %s and memory.max %d", high, most)
	}
}

// asKilledServersLeaveIt has it as it is with a server, or as it is when that has
// given the sandbox more, for there was no memory left.
func (m memory) asKilledServersLeaveIt(t *testing.T, more bool) {
	t.Helper()
	const reserve = 1 << 30
	limit := small.Memory
	switch {
	case m.first && more:
		m.set(t, "memory.limit_in_bytes", limit+reserve+reserve/2)
	case m.first:
		m.set(t, "memory.limit_in_bytes", limit+reserve)
	case more:
		m.set(t, "memory.max", limit+2*reserve)
		m.set(t, "memory.high", limit+reserve)
	default:
		m.set(t, "memory.max", limit+2*reserve)
		m.set(t, "memory.high", limit)
	}
	if m.first {
		m.set(t, "memory.oom_control", 1)
	}
}

// ranOut reports whether everything inside waits for memory, or is made slow.
func (m memory) ranOut(t *testing.T) bool {
	t.Helper()
	if m.first {
		return m.value(t, "memory.oom_control", "under_oom") != "0"
	}
	return m.used(t) > m.number(t, "memory.high")
}

func (m memory) file(name string) string { return filepath.Join(m.dir, name) }

func (m memory) set(t *testing.T, file string, n int64) {
	t.Helper()
	if err := os.WriteFile(m.file(file), strconv.AppendInt(nil, n, 10), 0); err != nil {
		t.Fatal(err)
	}
}

func (m memory) number(t *testing.T, file string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(read(t, m.file(file))), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (m memory) value(t *testing.T, file, name string) string {
	t.Helper()
	raw := read(t, m.file(file))
	for line := range strings.Lines(raw) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && key == name {
			return value
		}
	}
	t.Fatalf("no %s in %s", name, raw)
	return ""
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
