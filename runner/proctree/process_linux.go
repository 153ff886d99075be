package proctree

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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

// TicksAt is a time of the present run in the hundredths of a second that processes
// are born in. It may be a tick early.
func TicksAt(t time.Time) uint64 {
	raw, err := os.ReadFile("/proc/uptime")
	past := time.Since(t)
	if err != nil {
		return 0
	}
	seconds, _, _ := strings.Cut(string(raw), " ")
	now, _ := strconv.ParseUint(strings.ReplaceAll(seconds, ".", ""), 10, 64)
	return now - min(now, uint64(past/(10*time.Millisecond))+1) //nolint:gosec // it is past
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
