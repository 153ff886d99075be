//go:build linux

// Package proctree finds processes by what they carry and ends them together
// with everything they started, so that nothing is left which could still act.
package proctree

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Process is a living process as /proc shows it.
type Process struct {
	PID     int
	Parent  int
	Session int
	// Zombie says that the process is over and only waits to be reaped.
	Zombie bool

	start uint64 // tells a process from a later one with its pid
}

// Born is when the process was started, in the hundredths of a second that
// /proc/uptime counts.
func (p Process) Born() uint64 { return p.start }

// Variable returns what name was in the environment the process was started
// with. Children inherit it unless they take care not to.
func (p Process) Variable(name string) (string, bool) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/environ")
	if err != nil {
		return "", false
	}
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if v, ok := bytes.CutPrefix(e, []byte(name+"=")); ok {
			return string(v), true
		}
	}
	return "", false
}

// List returns every process.
func List() ([]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := make([]Process, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := lookAt(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// lookAt reads one process, if it is there.
func lookAt(pid int) (Process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, false
	}
	// The name is in brackets and may contain anything, brackets included.
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return Process{}, false
	}
	fields := bytes.Fields(b[end+1:])
	if len(fields) < 20 {
		return Process{}, false
	}
	p := Process{PID: pid, Zombie: fields[0][0] == 'Z' || fields[0][0] == 'X'}
	if p.Zombie {
		// Its first thread may be over while others run.
		tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		p.Zombie = err != nil || len(tasks) < 2
	}
	p.Parent, _ = strconv.Atoi(string(fields[1]))
	p.Session, _ = strconv.Atoi(string(fields[3]))
	p.start, _ = strconv.ParseUint(string(fields[19]), 10, 64)
	return p, true
}

// Find returns the living processes that seed picks, and all they started. The
// caller's own process is never among them.
func Find(seed func(Process) bool) ([]Process, error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	children := make(map[int][]Process)
	var found []Process
	taken := map[int]bool{self: true}
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
		if !taken[p.PID] && !p.Zombie && seed(p) {
			taken[p.PID] = true
			found = append(found, p)
		}
	}
	for i := 0; i < len(found); i++ {
		for _, c := range children[found[i].PID] {
			if !taken[c.PID] && !c.Zombie {
				taken[c.PID] = true
				found = append(found, c)
			}
		}
	}
	return found, nil
}

// End ends the processes that seed picks and all they started. It asks them
// first and gives them grace to comply; then it kills. It returns nil only once
// none is left.
func End(ctx context.Context, seed func(Process) bool, grace time.Duration) error {
	if err := ask(ctx, seed, grace); err != nil {
		return err
	}
	// A process seen while it changes programs shows no environment for an
	// instant, so one look that finds nothing is not enough.
	for clean, pause := 0, time.Millisecond; clean < 2; pause = min(2*pause, 50*time.Millisecond) {
		found, err := freeze(seed)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			clean++
		} else {
			clean = 0
		}
		for _, p := range found {
			p.signal(unix.SIGKILL)
		}
		if err := sleep.For(ctx, pause); err != nil && clean < 2 {
			return fmt.Errorf("end %d processes: %w", len(found), err)
		}
	}
	return nil
}

func ask(ctx context.Context, seed func(Process) bool, grace time.Duration) error {
	if grace <= 0 {
		return nil
	}
	found, err := Find(seed)
	if err != nil {
		return err
	}
	for _, p := range found {
		p.signal(unix.SIGTERM)
		p.signal(unix.SIGCONT) // a stopped process hears nothing
	}
	deadline := time.Now().Add(grace)
	for pause := time.Millisecond; len(found) > 0 && time.Now().Before(deadline); pause = min(2*pause, 20*time.Millisecond) {
		if err := sleep.For(ctx, pause); err != nil {
			return fmt.Errorf("end %d processes: %w", len(found), err)
		}
		if found, err = Find(seed); err != nil {
			return err
		}
	}
	return nil
}

// freeze stops what seed picks before any of it is killed: a stopped parent
// cannot have another child, and its children still show whose they are.
func freeze(seed func(Process) bool) ([]Process, error) {
	stopped := make(map[Process]bool)
	for {
		found, err := Find(seed)
		if err != nil {
			return nil, err
		}
		fresh := false
		for _, p := range found {
			if !stopped[p] {
				stopped[p], fresh = true, true
				p.signal(unix.SIGSTOP)
			}
		}
		if !fresh {
			return found, nil
		}
	}
}

// signal sends s to p and not to a later process with its pid.
func (p Process) signal(s unix.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	}
	now, ok := lookAt(p.PID)
	if !ok || now.start != p.start {
		return
	}
	if err != nil || unix.PidfdSendSignal(fd, s, nil, 0) != nil {
		_ = unix.Kill(p.PID, s) // a kernel without pidfds
	}
}
