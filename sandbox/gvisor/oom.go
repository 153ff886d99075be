//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
)

// At the end of a sandbox's memory the kernel of this machine would kill some
// process of it, and with that the sandbox. So a sandbox gets more than its limit
// while a server watches, and the server is told when it is above: it has the
// runner kill the processes that hold the most, until the sandbox is below again.
//
// Without a server nobody would do that, so when one lets go the kernel is to end
// what reaches its limit. How all this is said differs between the versions of
// cgroups: see memoryControl.

const (
	memoryStat = "memory.stat"

	// relieveWithin bounds how long a runner may take to kill processes, and
	// askedWithin for how long it is asked again if it does not answer.
	relieveWithin = 10 * time.Second
	askedWithin   = time.Minute
	// settleWithin is how long the memory of killed processes may take to be free
	// while others go on taking, and freeWithin, of all of them, while nobody does. It
	// is given back piece by piece, with up to stallWithin between.
	settleWithin = 100 * time.Millisecond
	stallWithin  = 2 * time.Second
	freeWithin   = 20 * time.Second
	// headroom is how much more a sandbox gets each time there is no memory left
	// at all.
	headroom = 32 << 20
	// taken is how much more a sandbox holds if others go on taking.
	taken = 16 << 20
	// lookEvery is how often a sandbox is looked at that is above its limit because
	// of files.
	lookEvery = 50 * time.Millisecond
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

// memoryControl is what a version of cgroups can do about a sandbox's memory.
type memoryControl interface {
	// begin lets the sandbox be above its limit. From then on the event says when
	// it is, at once if it is already.
	begin() (event *os.File, err error)
	// wait waits until the event says so, or its deadline is over.
	wait(event *os.File) error
	// usage is what the sandbox uses, and what of that it holds: the rest it only
	// remembers of files.
	usage() (used, held int64, err error)
	// over is told that the sandbox holds more than its limit, and what it uses.
	over(used int64) error
	// below is told that it does not. It reports whether something was changed.
	below() (changed bool, err error)
	// forget has a sandbox that holds less than its limit forget files, so that it
	// is below, and reports whether that can be done.
	forget(held int64) bool
	// end has the kernel of this machine end what reaches its limit.
	end() error
}

// memoryWatch is told when a sandbox is above its memory limit.
type memoryWatch struct {
	memoryControl
	limit  int64
	event  *os.File
	hit    chan struct{} // holds one: the sandbox is to be relieved
	closed atomic.Bool
}

// watchMemory lets a sandbox be above its limit and watches it. It returns nil if
// there is no limit to watch.
func (c cgroup) watchMemory(limit int64) (_ *memoryWatch, err error) {
	if limit == 0 {
		return nil, nil //nolint:nilnil // there is nothing to watch
	}
	m := &memoryWatch{limit: limit, hit: make(chan struct{}, 1), memoryControl: &memoryV1{cgroup: c, limit: limit, above: reserve}}
	if c.unified {
		m.memoryControl = &memoryV2{cgroup: c, limit: limit}
	}
	if m.event, err = m.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the sandbox's memory: %w", err), m.end())
	}
	return m, nil
}

// close leaves the sandbox to the kernel of this machine, once.
func (m *memoryWatch) close() error {
	if m == nil || m.closed.Swap(true) {
		return nil
	}
	err := m.end()
	if ended(err) {
		err = nil // the sandbox has ended
	}
	if err = errors.Join(err, m.event.Close()); err != nil {
		return fmt.Errorf("leave the sandbox's memory alone: %w", err)
	}
	return nil
}

// run has the sandbox relieved whenever it is above its limit.
func (m *memoryWatch) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = m.event.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for m.wait(m.event) == nil {
		select {
		case m.hit <- struct{}{}:
		default:
		}
	}
}

// excess waits until it is certain whether processes of the sandbox hold too much,
// and returns how much that is, 0 if they do not.
func (m *memoryWatch) excess(ctx context.Context) (int64, error) {
	for {
		used, held, err := m.usage()
		switch {
		case err != nil:
			return 0, err
		case held > m.limit:
			return held - m.limit, m.over(used)
		case used < m.limit:
			if changed, err := m.below(); err != nil || !changed {
				return 0, err
			}
			continue // nothing would tell of what it took meanwhile
		case m.forget(held):
			// It is told of again when it is above. One that has much to do with files
			// is so all the time, and need not be looked at that often.
			return 0, sleep.For(ctx, lookEvery)
		}
		// It is files, on their way to the disk perhaps. Nothing would tell if it
		// were processes next.
		if err := sleep.For(ctx, lookEvery); err != nil {
			return 0, err
		}
	}
}

// memoryUsage is what the sandbox uses, as a file says, and what of that is not of
// files, as these names in its statistics say.
func (c cgroup) memoryUsage(file string, files ...string) (used, held int64, err error) {
	if used, err = c.read(file, ""); err != nil {
		return 0, 0, err
	}
	held = used
	for _, name := range files {
		n, err := c.read(memoryStat, name)
		if err != nil {
			return 0, 0, err
		}
		held -= n
	}
	return used, held, nil
}

// freed waits for processes that held so much, and were killed when the sandbox was
// above its limit by over, to give it back. A machine that has much to do takes its
// time, so that is waited for until an end, but not while others take it.
func (m *memoryWatch) freed(ctx context.Context, over, killed int64, end time.Time) {
	fell := time.Now() // when it held less than ever
	if end.Before(fell.Add(settleWithin)) {
		end = fell.Add(settleWithin)
	}
	for before, lowest := int64(0), int64(0); ; {
		_, held, err := m.usage()
		now := time.Now()
		if before == 0 { // they took more until they were killed
			before, lowest = max(held, m.limit+over), held
		}
		if held < lowest {
			lowest, fell = held, now
		}
		switch {
		case err != nil, held <= m.limit, now.After(end):
			return
		case now.Sub(fell) > settleWithin && held > lowest+taken:
			return
		case now.Sub(fell) > stallWithin && before-lowest > killed/2: // it is back, as far as can be told
			return
		}
		if sleep.For(ctx, 5*time.Millisecond) != nil {
			return
		}
	}
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
	began, end := time.Now(), time.Time{}
	for round := range maxRounds {
		over, err := l.memory.excess(ctx)
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
		if errors.Is(err, runner.ErrUnreachable) && time.Since(began) < askedWithin && sleep.For(ctx, lookEvery) == nil {
			continue // those that fill memory take the processors too; it may have killed some by now
		}
		if err != nil {
			return err
		}
		l.driver.log.InfoContext(ctx, "processes killed for lack of memory", "session", l.handle.Session, "generation", l.handle.Generation,
			"count", len(victims), "pid", victims[0].PID, "command", victims[0].Command, "rss", victims[0].RSS)
		l.tell(victims)
		var killed int64
		for _, v := range victims { // which it may lie about
			killed += min(max(v.RSS, 0), l.memory.limit+over)
		}
		if end.IsZero() {
			end = time.Now().Add(freeWithin)
		}
		l.memory.freed(ctx, over, killed, end)
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
			file = memoryEvents
		}
		if kills, err := c.read(file, "oom_kill"); err != nil || kills == 0 {
			return nil //nolint:nilerr // it is not known, and not needed for anything else
		}
	}
	return fmt.Errorf("it needed more than the %d MiB of memory that it may have", m.Limits.Memory>>20)
}
