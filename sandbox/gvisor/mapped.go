//go:build linux

package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mapped lists the files of the workspace that something inside writes to as if
// they were memory, by their paths there: what it writes changes no time of theirs.
// The address spaces inside are children of the kernel.
func (s *sentry) mapped() ([]string, error) {
	pid := s.c.SandboxPid()
	spaces, err := children(pid)
	if err != nil {
		return nil, fmt.Errorf("look which files are mapped: %w", err)
	}
	var found []string
	for _, pid := range append(spaces, pid) {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return nil, fmt.Errorf("look which files are mapped: %w", err)
		}
		found = append(found, mappedIn(raw)...)
	}
	return found, nil
}

// mappedIn finds them in the list of one address space. A file without a name has
// one that could also be that of another.
func mappedIn(maps []byte) (found []string) {
	const shared, inWorkspace, deleted = " rw-s ", insideSlot + "/ws/", " (deleted)"
	for line := range bytes.Lines(maps) {
		if !bytes.Contains(line, []byte(shared)) {
			continue
		}
		if _, path, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), inWorkspace); ok {
			path = strings.ReplaceAll(path, `\012`, "\n")
			found = append(found, path, strings.TrimSuffix(path, deleted))
		}
	}
	return found
}

// children lists the processes that a process has started.
func children(pid int) (found []int, err error) {
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return nil, err
	}
	for _, thread := range threads {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", thread.Name(), "children"))
		if errors.Is(err, fs.ErrNotExist) {
			if _, gone := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "task", thread.Name())); gone != nil {
				continue
			}
			return childrenOf(pid) // this machine's kernel does not list them
		}
		if err != nil {
			return nil, err
		}
		for field := range strings.FieldsSeq(string(raw)) {
			if n, err := strconv.Atoi(field); err == nil {
				found = append(found, n)
			}
		}
	}
	return found, nil
}

// childrenOf finds them among all processes.
func childrenOf(pid int) (found []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, name := range stats {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// After the name, which may hold anything, come the state and the parent.
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			found = append(found, n)
		}
	}
	return found, nil
}
