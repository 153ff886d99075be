//go:build linux

package wall

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// memory is what a process holds.
type memory struct{ rss, peak, file int64 }

func memoryOf(pid int) (m memory, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, false
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		switch name {
		case "VmRSS":
			m.rss = n << 10
		case "VmHWM":
			m.peak = n << 10
		case "RssFile":
			m.file = n << 10
		}
	}
	return m, m.rss > 0
}

// tooMuch is the growth at which a server is killed, to protect the machine.
const tooMuch = 512 << 20

// watch looks at one server while a case runs: how much memory it takes, and what of
// the host it has open.
type watch struct {
	life   *rig.Life
	under  string // where the bait lies
	before memory
	stop   chan struct{}
	done   sync.WaitGroup

	mu     sync.Mutex
	grew   int64    // guarded by mu
	opened []string // guarded by mu
	killed bool     // guarded by mu
}

// startWatch begins to look. What the server holds is held against what there was
// before, if there was anything: a server that has just started then counts from its
// first page.
func startWatch(life *rig.Life, under string, before memory) *watch {
	w := &watch{life: life, under: under, before: before, stop: make(chan struct{})}
	if before.rss > 0 {
		w.done.Go(w.look)
		return w
	}
	const forgetPeak = "5"
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", life.PID()), []byte(forgetPeak), 0) // where it cannot be forgotten, samples tell
	w.before, _ = memoryOf(life.PID())
	w.done.Go(w.look)
	return w
}

func (w *watch) look() {
	const every = 10 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-w.stop:
			return
		case <-w.life.Done():
			return
		case <-tick.C:
		}
		w.measure(func(m memory) int64 { return m.rss })
		const seldom = 5
		if n%seldom == 0 {
			w.descriptors()
		}
		w.mu.Lock()
		kill := w.grew > tooMuch
		w.killed = w.killed || kill
		w.mu.Unlock()
		if kill {
			w.life.Kill()
			return
		}
	}
}

// measure notes how much more there is than before. Pages of the program itself are
// read as they are needed, and are no growth.
func (w *watch) measure(which func(memory) int64) {
	now, ok := memoryOf(w.life.PID())
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grew = max(w.grew, which(now)-w.before.rss-max(now.file-w.before.file, 0))
}

// descriptors notes what of the host is open that is none of the server's business.
func (w *watch) descriptors() {
	dir := fmt.Sprintf("/proc/%d/fd", w.life.PID())
	fds, _ := os.ReadDir(dir) // one that is gone has none
	for _, fd := range fds {
		at, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err != nil || at != "/dev/zero" && at != "/dev/kmsg" && !strings.HasPrefix(at, w.under+"/") {
			continue
		}
		w.mu.Lock()
		if text := filepath.Base(at) + " is open in the server"; !slices.Contains(w.opened, text) {
			w.opened = append(w.opened, text)
		}
		w.mu.Unlock()
	}
}

// end stops watching and says what was seen.
func (w *watch) end() (grew int64, opened []string, killed bool) {
	w.measure(func(m memory) int64 { return m.peak })
	close(w.stop)
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grew, w.opened, w.killed
}

// process is one that a server has started, directly or not.
type process struct {
	pid  int
	name string
	text []byte // its command line and its environment
	fork bool   // it is a copy of the server, which is about to become another program
}

// descendants lists the processes below the server, and those whose command line
// names its directory of kernels: some are left to the first process of the machine.
// The server's own environment is what the operator gave it.
func descendants(server int, mark string) (found []process) {
	parents := make(map[int]int)
	dirs, _ := os.ReadDir("/proc") // one can always read it
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(b, []byte(") ")) // its name may hold anything
		var state string
		var parent int
		if _, err := fmt.Sscan(string(rest), &state, &parent); err == nil {
			parents[pid] = parent
		}
	}
	below := func(pid int) bool {
		for range len(parents) {
			if pid == server {
				return true
			}
			if pid = parents[pid]; pid <= 1 {
				return false
			}
		}
		return false
	}
	own, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", server))
	for pid := range parents {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if !below(pid) && !bytes.Contains(line, []byte(mark)) {
			continue
		}
		p := process{pid: pid, text: line, fork: pid != server && bytes.Equal(line, own)}
		if name, _, _ := bytes.Cut(line, []byte{0}); len(name) > 0 {
			p.name = filepath.Base(string(name))
		}
		if pid != server && !p.fork {
			env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			p.text = append(append(p.text, 0), env...)
		}
		found = append(found, p)
	}
	return found
}
