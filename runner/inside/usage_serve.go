//go:build linux

package inside

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner"
)

// usage says what goes on.
func (r *Runner) usage(k *conn, f runner.Frame) (*runner.Usage, error) {
	u := new(runner.Usage)
	r.mu.Lock()
	err := r.admit(k, f)
	for _, o := range r.ops {
		if !o.finished() {
			u.Ops++
		}
	}
	u.Tasks = len(r.tasks)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r.terminals.mu.Lock()
	u.Terminals = r.terminals.count()
	r.terminals.mu.Unlock()
	idle := r.shells.idle()
	u.Active = r.active.last()
	if u.Ops > 0 {
		u.Active = time.Now()
	}
	var dead unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &dead); err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	u.CPU = time.Duration(dead.Utime.Nano() + dead.Stime.Nano())
	all, whole, err := r.below.Find()
	if err != nil {
		return nil, err
	}
	if !whole {
		u.Processes++ // at least the one that was missed
	}
	for _, p := range all {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
		if err != nil {
			continue // it ended while we looked
		}
		if s, ok := parseStat(b); ok {
			u.Processes++
			if idle[p.PID] {
				u.Shells++
			}
			u.CPU += s.cpu
			u.RSS += s.rss
		}
	}
	return u, nil
}

// stat is what the kernel says of a process.
type stat struct {
	cpu time.Duration // its own and that of its reaped children
	rss int64
}

// clockTick is the unit of times in /proc, the same on every machine.
const clockTick = 10 * time.Millisecond

// The fields of /proc/<pid>/stat that are read, counted from the one behind the
// name.
const (
	statTimes = 11 // user, system, and both of reaped children
	statRSS   = 21
)

// parseStat reads /proc/<pid>/stat.
func parseStat(b []byte) (stat, bool) {
	// The name is in brackets and may contain anything, brackets included.
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return stat{}, false
	}
	fields := bytes.Fields(b[end+1:])
	if len(fields) <= statRSS {
		return stat{}, false
	}
	var s stat
	for _, f := range fields[statTimes : statTimes+4] {
		n, err := strconv.ParseInt(string(f), 10, 37) // so that neither product nor sum wraps
		if err != nil || n < 0 {
			return stat{}, false
		}
		s.cpu += time.Duration(n) * clockTick
	}
	pages, err := strconv.ParseInt(string(fields[statRSS]), 10, 40)
	if err != nil || pages < 0 {
		return stat{}, false
	}
	s.rss = pages * int64(os.Getpagesize())
	return s, true
}
