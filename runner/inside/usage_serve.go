package inside

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner"
)

// usage measures the resource usage.
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
		u.Processes++ // at least one process was missed
	}
	stats, err := statsOf(all)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if s, ok := stats[p.PID]; ok { // it may have ended meanwhile
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
