package proctree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// maxLooks is how often processes are looked at until no look has missed any.
const maxLooks = 8

// Descendants finds, over and over, what this process started and what it has adopted: it
// must be a subreaper. A process that is not among them now never will be, so strangers
// are remembered, and another look on a busy machine costs little more than the list of
// its processes.
type Descendants struct {
	mu   sync.Mutex
	seen look
}

// look is what one look at all processes has found.
type look struct {
	pid    int             // the newest then
	living map[int]Process // ours
	// strangers by pid, each with the number of its directory in /proc: a later process
	// with that pid has another.
	strangers map[int]uint64
	dead      map[int]Process // ours, but for their parents to hear of it
	hidden    map[int]int     // by pid, the parent that is not listed
}

// Find returns those that live. It reports false where processes came and went so fast
// that one may have been missed.
func (d *Descendants) Find() (living []Process, whole bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range maxLooks {
		if d.seen, whole, err = d.seen.again(); err != nil {
			return nil, false, err
		}
		if whole {
			break
		}
	}
	return slices.Collect(maps.Values(d.seen.living)), whole, nil
}

// again looks once more. Processes are listed in the order of their pids, so one is
// missed if it goes on in a child behind what is listed already. A look is not whole if
// a process ended meanwhile, or if pids began anew, so that a child may have a smaller
// one than its parent. The child of one that was being born all through a look has its
// parent in it, which must not have ended by the next.
func (l look) again() (next look, whole bool, err error) {
	first, ok := lastPID()
	if !ok {
		return look{}, false, errors.New("list processes: /proc/loadavg is not as it should be")
	}
	listed, err := list()
	if err != nil {
		return look{}, false, err
	}
	last, ok := lastPID()
	whole = ok && l.strangers != nil && first >= l.pid && last >= first
	next = look{
		pid: last, living: make(map[int]Process), dead: make(map[int]Process),
		strangers: make(map[int]uint64, len(listed)), hidden: make(map[int]int),
	}
	fresh := make(map[int]Process)
	for pid, dir := range listed {
		if l.strangers[pid] == dir {
			next.strangers[pid] = dir
		} else if p, ok := lookAt(pid); ok {
			fresh[pid] = p
		} else {
			whole = false
		}
	}
	self := os.Getpid()
	for pid, p := range fresh {
		if pid == self {
			continue
		}
		switch root := ancestor(p, fresh, next.strangers, self); {
		case root == self && !p.Zombie:
			next.living[pid] = p
		case root == self:
			next.dead[pid] = p
			whole = whole && l.dead[pid] == p
		case root == 0:
			next.strangers[pid] = listed[pid]
		default:
			// Its parent is kept from our eyes or was not there yet.
			next.hidden[pid] = root
			whole = whole && l.hidden[pid] == root
		}
	}
	for pid, p := range l.living {
		whole = whole && next.living[pid].start == p.start
	}
	return next, whole, nil
}

// ancestor follows p's parents: to self, to 0 where they end among strangers, or to one
// that nothing is known of.
func ancestor(p Process, known map[int]Process, strangers map[int]uint64, self int) int {
	for range len(known) + 1 {
		if p.Parent == self || p.Parent == 0 {
			return p.Parent
		}
		if _, stranger := strangers[p.Parent]; stranger {
			return 0
		}
		parent, ok := known[p.Parent]
		if !ok {
			return p.Parent
		}
		p = parent
	}
	return p.Parent // pids changed hands while they were read
}

// list returns the pids of all processes and the number of each one's directory.
func list() (map[int]uint64, error) {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	listed := make(map[int]uint64)
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		if n <= 0 {
			return listed, nil
		}
		for rest := buf[:n]; len(rest) > direntName; {
			size := int(binary.NativeEndian.Uint16(rest[direntSize:]))
			if size <= direntName || size > len(rest) {
				return nil, fmt.Errorf("list processes: an entry of %d bytes", size)
			}
			name, _, _ := bytes.Cut(rest[direntName:size], []byte{0})
			if pid, err := strconv.Atoi(string(name)); err == nil {
				listed[pid] = binary.NativeEndian.Uint64(rest)
			}
			rest = rest[size:]
		}
	}
}

// lastPID is the newest pid.
func lastPID() (int, bool) {
	b, err := os.ReadFile("/proc/loadavg")
	fields := bytes.Fields(b)
	if err != nil || len(fields) == 0 {
		return 0, false
	}
	pid, err := strconv.Atoi(string(fields[len(fields)-1]))
	return pid, err == nil
}

// Where the kernel puts what is used of a directory's entry; its number comes first.
const (
	direntSize = 16
	direntName = 19
)
