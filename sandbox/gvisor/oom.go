//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner"
)

// At the end of a sandbox's memory the kernel of this machine would kill some
// process of it, and with that the sandbox. So a sandbox gets a little more than
// its limit while a server watches, and the server is told when it is above: it
// has the runner kill the processes that hold the most, until the sandbox is
// below again.
//
// Whoever wants memory when there is none left at all waits, for the killer of
// the kernel is disarmed. Without a server nobody would ever end the waiting, so
// the killer is armed again when one lets go.
//
// This is of cgroups of the first version only. In the second the sandbox ends.

const (
	memoryLimit = "memory.limit_in_bytes"
	memoryUsage = "memory.usage_in_bytes"
	memoryStat  = "memory.stat"
	oomControl  = "memory.oom_control"

	// headroom is how much more a sandbox gets each time there is no memory left
	// at all.
	headroom = 32 << 20
	// relieveWithin bounds how long a runner may take to kill processes.
	relieveWithin = 10 * time.Second
	// settleWithin is how long the memory of killed processes may take to be free.
	settleWithin = 100 * time.Millisecond
	// maxRounds is how often in a row processes are killed before it is clear that
	// something else holds the memory.
	maxRounds = 64
)

// reserve is how far above its limit a sandbox may be for a moment. A kernel of
// gVisor that is refused memory of its own panics, so it must be enough for what
// processes that fill memory as fast as they can take until they are killed: that
// is half a second if they are many.
const reserve = 1 << 30

// maxAbove is how far above its limit a sandbox ever gets.
const maxAbove = 2 * reserve

// memoryWatch is told when a sandbox is above its memory limit.
type memoryWatch struct {
	cgroup cgroup
	limit  int64
	event  *os.File
	hit    chan struct{} // holds one: the sandbox is to be relieved
	closed atomic.Bool

	mu    sync.Mutex
	above int64 // guarded by mu; how far above its limit the sandbox may be
}

// watchMemory disarms the killer and watches instead. It returns nil if there is
// no limit to watch.
func (c cgroup) watchMemory(limit int64) (_ *memoryWatch, err error) {
	if c.unified || limit == 0 {
		return nil, nil //nolint:nilnil // there is nothing to watch
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the sandbox's memory: %w", err)
	}
	m := &memoryWatch{
		cgroup: c, limit: limit, event: os.NewFile(uintptr(fd), "memory"), hit: make(chan struct{}, 1), above: reserve,
	}
	// One that is above its limit already says so at once.
	err = errors.Join(m.tell(fd, oomControl, ""), m.tell(fd, memoryUsage, strconv.FormatInt(limit, 10)), c.set("memory", oomControl, "1"))
	if err == nil {
		err = m.grant()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch the sandbox's memory: %w", err), m.close())
	}
	return m, nil
}

// tell has the event raised by a file of the cgroup.
func (m *memoryWatch) tell(event int, file, argument string) error {
	f, err := os.Open(filepath.Join(m.cgroup.dir("memory"), file))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return m.cgroup.set("memory", "cgroup.event_control", fmt.Sprintf("%d %d %s", event, f.Fd(), argument))
}

// close arms the killer again, once.
func (m *memoryWatch) close() error {
	if m == nil || m.closed.Swap(true) {
		return nil
	}
	err := m.cgroup.set("memory", oomControl, "0")
	_ = m.allow(m.limit) // one that is above may stay there
	if ended(err) {
		err = nil // the sandbox has ended
	}
	if err = errors.Join(err, m.event.Close()); err != nil {
		return fmt.Errorf("leave the sandbox's memory alone: %w", err)
	}
	return nil
}

// run has the sandbox relieved whenever it is above its limit, and gives it more
// when there is none left: others may have taken what the runner needs.
func (m *memoryWatch) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = m.event.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		var count [8]byte
		if _, err := m.event.Read(count[:]); err != nil || m.raise() != nil {
			return
		}
		select {
		case m.hit <- struct{}{}:
		default:
		}
	}
}

// raise gives the sandbox more if everything in it waits. There is an end to it.
func (m *memoryWatch) raise() error {
	if out, err := m.read(oomControl, "under_oom"); err != nil || out == 0 {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.above = min(m.above+headroom, maxAbove)
	return m.grant()
}

// over waits until it is certain whether processes of the sandbox hold too much,
// and returns how much that is, 0 if they do not.
func (m *memoryWatch) over(ctx context.Context) (int64, error) {
	for {
		used, held, err := m.usage()
		switch {
		case err != nil:
			return 0, err
		case held > m.limit:
			return held - m.limit, nil
		case used < m.limit:
			return 0, m.calm()
		case held < m.limit-m.limit/8 && m.trim() == nil:
			return 0, nil
		}
		// It is files, on their way to the disk perhaps. Nothing would tell if it
		// were processes next.
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// usage is what the sandbox uses, and what of that it holds: the rest it only
// remembers of files.
func (m *memoryWatch) usage() (used, held int64, err error) {
	if used, err = m.read(memoryUsage, ""); err != nil {
		return 0, 0, err
	}
	held = used
	for _, name := range []string{"total_active_file", "total_inactive_file"} {
		n, err := m.read(memoryStat, name)
		if err != nil {
			return 0, 0, err
		}
		held -= n
	}
	return used, held, nil
}

// trim makes the sandbox forget files, so that it is below its limit and told of
// again when it is not. It must have much to forget: at the instant when it may
// have no more, the kernel in it must still find what it needs.
func (m *memoryWatch) trim() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.allow(m.limit - m.limit/16); err != nil {
		return err
	}
	m.above = reserve
	return m.grant()
}

// calm takes back what the sandbox got when there was nothing left.
func (m *memoryWatch) calm() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.above == reserve {
		return nil
	}
	m.above = reserve
	return m.grant()
}

// freed waits a moment for the memory of killed processes.
func (m *memoryWatch) freed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for {
		if _, held, err := m.usage(); err != nil || held <= m.limit || sleep(ctx, 5*time.Millisecond) != nil {
			return
		}
	}
}

// grant lets the sandbox be as far above its limit as it may. What the kernel of
// this machine cannot refuse is charged beyond any limit, so one that has nothing
// left may hold more than it was given; then it gets what it holds.
func (m *memoryWatch) grant() error {
	for {
		err := m.allow(m.limit + m.above)
		if !errors.Is(err, unix.EBUSY) || m.above == maxAbove {
			return err
		}
		m.above = min(m.above+headroom, maxAbove)
	}
}

func (m *memoryWatch) allow(bytes int64) error {
	return m.cgroup.set("memory", memoryLimit, strconv.FormatInt(bytes, 10))
}

func (m *memoryWatch) read(file, name string) (int64, error) {
	return m.cgroup.read("memory", file, name)
}

// relieve has processes killed while the sandbox is above its memory limit. If
// that does not help, the sandbox is ended.
func (l *live) relieve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.memory.hit:
		}
		err := l.killHogs(ctx)
		switch {
		case err == nil, ctx.Err() != nil, l.kernel.proc.Ended():
		case errors.Is(err, runner.ErrQuiesced), errors.Is(err, runner.ErrClosed):
			// It is being frozen. What that takes is soon given back.
		default:
			l.driver.log.ErrorContext(ctx, "sandbox ended for lack of memory", "session", l.handle.Session, "generation", l.handle.Generation, "error", err)
			l.kernel.proc.Signal(unix.SIGKILL)
			return
		}
	}
}

// killHogs has the largest processes killed until the sandbox is below its limit.
func (l *live) killHogs(ctx context.Context) error {
	for round := range maxRounds {
		over, err := l.memory.over(ctx)
		if err != nil {
			return err
		}
		l.starving.Store(over > 0)
		if over == 0 {
			return nil
		}
		asking, cancel := context.WithTimeoutCause(ctx, relieveWithin, runner.ErrUnreachable)
		// If it was not enough once, there are many of them.
		victims, err := l.Relieve(asking, over+l.memory.limit/8<<min(round, 2))
		cancel()
		if err != nil {
			return err
		}
		l.driver.log.InfoContext(ctx, "processes killed for lack of memory", "session", l.handle.Session, "generation", l.handle.Generation,
			"count", len(victims), "pid", victims[0].PID, "command", victims[0].Command, "rss", victims[0].RSS)
		l.tell(victims)
		l.memory.freed(ctx)
	}
	return errors.New("what was killed did not hold the memory")
}

// tell says which processes were ended, if no op does.
func (l *live) tell(victims []runner.Victim) {
	victims = slices.DeleteFunc(victims, func(v runner.Victim) bool { return v.Told })
	if len(victims) == 0 {
		return
	}
	words := victims[0].String()
	if more := len(victims) - 1; more > 0 {
		words += fmt.Sprintf(", and %d more", more)
	}
	select {
	case l.reliefs <- words:
	default: // one is waiting to be read
	}
}

// starved says that a sandbox died because of its memory limit, if that is known:
// by the kernel that killed it, or because it was above its limit to the last.
func (d *Driver) starved(b box, m made, known bool) error {
	if !known {
		c := d.cgroupOf(b)
		file := oomControl
		if c.unified {
			file = "memory.events"
		}
		if kills, err := c.read("memory", file, "oom_kill"); err != nil || kills == 0 {
			return nil //nolint:nilerr // it is not known, and not needed for anything else
		}
	}
	return fmt.Errorf("it needed more than the %d MiB of memory that it may have", m.Limits.Memory>>20)
}
