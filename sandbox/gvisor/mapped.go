//go:build linux

package gvisor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapped lists the files of the workspace that are mapped shared and writable inside, by
// their paths there: writes to them change no time. The address spaces inside are child
// processes of the kernel.
func (s *sentry) mapped(ctx context.Context) ([]string, error) {
	return mappedIn(ctx, s.c.SandboxPid())
}

// mappedIn is mapped for the kernel with a process id.
func mappedIn(ctx context.Context, pid int) ([]string, error) {
	spaces, err := children(pid)
	if err != nil {
		return nil, fmt.Errorf("look which files are mapped: %w", err)
	}
	found := mappings{paths: make(map[string]bool), room: mostMapped}
	for _, pid := range append(spaces, pid) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("look which files are mapped: %w", context.Cause(ctx))
		}
		list, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
		if err == nil {
			err = errors.Join(found.read(list), list.Close())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // else it has ended
			return nil, fmt.Errorf("look which files are mapped: %w", err)
		}
	}
	return slices.Collect(maps.Keys(found.paths)), nil
}

// mostMapped bounds the bytes of all paths together: the sandbox chooses how many there
// are, and their names.
const mostMapped = 8 << 20

// mappings are files that are mapped for writing.
type mappings struct {
	paths map[string]bool
	room  int
}

// read finds them in the maps of one address space. The name of a deleted file could also
// be that of another.
func (m *mappings) read(list io.Reader) error {
	const shared, inWorkspace, deleted = " rw-s ", insideSlot + "/ws/", " (deleted)"
	lines := bufio.NewScanner(list)
	lines.Buffer(nil, 1<<20) // four times what the longest path may take
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(shared)) {
			continue
		}
		_, path, ok := strings.Cut(lines.Text(), inWorkspace)
		if !ok {
			continue
		}
		path = strings.ReplaceAll(path, `\012`, "\n")
		for _, path := range []string{path, strings.TrimSuffix(path, deleted)} {
			if m.paths[path] {
				continue
			}
			if m.room -= len(path); m.room < 0 {
				return errors.New("there are too many")
			}
			m.paths[path] = true
		}
	}
	return lines.Err()
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
			return childrenOf(pid) // the kernel of this machine does not list children
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
