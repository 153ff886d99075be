package inside

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

// killTimeout bounds the wait for killed processes.
const killTimeout = 5 * time.Second

// memoryUser is a process and its memory.
type memoryUser struct {
	proctree.Process
	held int64
}

// relieve is the OOM killer: it kills the processes that use the most memory, but never
// the runner.
func (r *Runner) relieve(k *conn, f runner.Frame) ([]runner.Victim, error) {
	if err := r.admitted(k, f); err != nil {
		return nil, err
	}
	hogs, err := r.byMemory()
	if err != nil {
		return nil, err
	}
	if len(hogs) == 0 {
		return nil, fmt.Errorf("no process is left to kill: %w", dormouse.ErrNotFound)
	}
	var victims []runner.Victim
	var killed []unix.PollFd
	defer func() {
		for _, p := range killed {
			_ = unix.Close(int(p.Fd))
		}
	}()
	for free := int64(0); len(hogs) > 0 && len(victims) < runner.MaxVictims && (free < f.Bytes || free == 0); hogs = hogs[1:] {
		h := hogs[0]
		v := runner.Victim{PID: h.PID, Command: commandOf(h.PID), RSS: h.held}
		free += h.held
		fd, err := unix.PidfdOpen(h.PID, 0)
		if err != nil {
			victims = append(victims, v)
			continue // it has ended by itself
		}
		if n, ok := memoryOf(h.PID); !ok || n < h.held/2 {
			_ = unix.Close(fd)
			victims = append(victims, v)
			continue // its memory is free already, or the PID was reused
		}
		killed = append(killed, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}) //nolint:gosec // descriptors are small
		v.Reported = r.attributeKill(h.Process, v)
		victims = append(victims, v)
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, fmt.Errorf("kill process %d: %w", h.PID, err)
		}
	}
	return victims, waitKilled(killed)
}

// waitKilled waits until all processes have ended. It does not reap them.
func waitKilled(all []unix.PollFd) error {
	end := time.Now().Add(killTimeout)
	for i := range all {
		for {
			n, err := unix.Poll(all[i:i+1], max(int(time.Until(end).Milliseconds()), 0))
			if n > 0 {
				break
			}
			if err == nil {
				return errors.New("a process that was killed does not end")
			}
			if !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("wait for a process that was killed: %w", err)
			}
		}
	}
	return nil
}

// byMemory returns all processes but the runner, the largest first.
func (r *Runner) byMemory() ([]memoryUser, error) {
	all, _, err := r.below.Find()
	if err != nil {
		return nil, err
	}
	hogs := make([]memoryUser, 0, len(all))
	for _, p := range all {
		if n, ok := memoryOf(p.PID); ok {
			hogs = append(hogs, memoryUser{p, n})
		}
	}
	slices.SortFunc(hogs, func(a, b memoryUser) int { return cmp.Compare(b.held, a.held) })
	return hogs, nil
}

// attributeKill notes the kill in the op that p belongs to, or in every running op if
// that one has ended or is unknown. It reports whether there was one.
func (r *Runner) attributeKill(p proctree.Process, v runner.Victim) (told bool) {
	id, _ := p.Variable(opVariable)
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.ops[dormouse.OpID(id)]; o != nil && !o.finished() {
		o.victim.Store(&v)
		return true
	}
	for _, o := range r.ops {
		if !o.finished() {
			o.victim.Store(&v)
			told = true
		}
	}
	return told
}

// memoryOf is the memory of a process, if there is one: its resident memory and its
// open memfds.
func memoryOf(pid int) (int64, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	s, ok := parseStat(b)
	return s.rss + memfdSize(pid), ok
}

// memfdSize is the size of the memfds that a process has open.
func memfdSize(pid int) (size int64) {
	const most = 256 // these are enough to find a large process
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	f, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	names, _ := f.Readdirnames(most)
	for _, name := range names {
		var at unix.Stat_t
		if to, err := os.Readlink(dir + name); err == nil && strings.HasPrefix(to, "/memfd:") && unix.Stat(dir+name, &at) == nil {
			size += at.Blocks * 512 // what a block is, whatever the file system has
		}
	}
	return size
}

// commandOf is the command line of a process, or its name.
func commandOf(pid int) string {
	for _, name := range []string{"cmdline", "comm"} {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + name)
		if words := runner.SingleLine(string(b)); err == nil && words != "" {
			return words
		}
	}
	return "?"
}
