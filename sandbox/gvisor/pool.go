//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/flock"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
)

// pool has sandboxes without a session, so that neither a new session nor one that wakes
// waits for a kernel. Those for new sessions are started, and their runners wait at a
// gate.
type pool struct {
	ready   chan *spare
	blank   chan *spare   // in which nothing runs
	want    chan struct{} // holds one: a spare was taken
	stop    context.CancelFunc
	running sync.WaitGroup
}

// spare is a sandbox without a session: one that is started and whose runner waits at the
// gate, or one in which nothing runs yet, for a memory image to be restored to.
type spare struct {
	box    box
	kernel *sentry
	gate   *net.UnixListener // nil if nothing runs
	waiter *net.UnixConn     // the runner, waiting
	// held is locked as long as this server lives, so that no other server sweeps the box.
	held *os.File
}

// Spares is how many sandboxes are ready for new sessions, and how many for sessions that
// wake.
func (d *Driver) Spares() (started, blank int) { return len(d.pool.ready), len(d.pool.blank) }

const (
	// poolRetry is how long the pool waits after a failure.
	poolRetry = 5 * time.Second
	// poolPause leaves the CPU to the session that has just taken a spare.
	poolPause = 300 * time.Millisecond
)

// fillPool keeps n spares of each kind ready.
func (d *Driver) fillPool(n int) {
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the driver
	d.pool = pool{ready: make(chan *spare, n), blank: make(chan *spare, n), want: make(chan struct{}, 1), stop: stop}
	d.pool.running.Go(func() {
		for ctx.Err() == nil {
			short, start := d.pool.ready, true
			if len(short) == n {
				short, start = d.pool.blank, false
			}
			if len(short) == n {
				select {
				case <-ctx.Done():
				case <-d.pool.want:
					_ = sleep.For(ctx, poolPause)
				}
				continue
			}
			s, err := d.makeSpare(ctx, start)
			if err != nil {
				d.log.WarnContext(ctx, "no spare sandbox made", "error", err)
				_ = sleep.For(ctx, poolRetry)
				continue
			}
			short <- s // only we send, and there is room
		}
	})
}

// closePool ends the spares.
func (d *Driver) closePool() error {
	if d.pool.stop == nil {
		return nil
	}
	d.pool.stop()
	d.pool.running.Wait()
	d.pool.stop = nil
	close(d.pool.ready)
	close(d.pool.blank)
	var errs []error
	for _, kind := range []chan *spare{d.pool.ready, d.pool.blank} {
		for s := range kind {
			errs = append(errs, d.discard(s))
		}
	}
	return errors.Join(errs...)
}

// discard ends a spare that no session will have.
func (d *Driver) discard(s *spare) error {
	s.close()
	ctx, cancel := context.WithTimeout(context.Background(), undoWithin) //nolint:forbidigo // it is quick, and must not be given up half way
	defer cancel()
	return d.end(ctx, s.box, d.noSession())
}

// claim takes a live spare of a kind, nil if there is none. It removes spares that have
// died, which otherwise stay unknown until the next server starts.
func (d *Driver) claim(kind <-chan *spare) *spare {
	for {
		select {
		case s, open := <-kind:
			if !open {
				return nil
			}
			select {
			case d.pool.want <- struct{}{}:
			default:
			}
			if s.kernel.alive() {
				return s
			}
			if err := d.discard(s); err != nil {
				d.log.Warn("a dead spare is left until the next start", "sandbox", s.box.id, "error", err)
			}
		default:
			return nil
		}
	}
}

// makeSpare creates a spare, and starts it unless it is for a memory image.
func (d *Driver) makeSpare(ctx context.Context, start bool) (_ *spare, err error) {
	if start && d.volumes.Limited() {
		if err := d.volumes.FitsSpare(); err != nil {
			return nil, err
		}
	}
	b := d.newBox()
	s := &spare{box: b}
	defer func() {
		if err != nil {
			s.close()
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
			defer cancel()
			err = errors.Join(err, d.end(undo, b, d.noSession()))
		}
	}()
	if s.held, err = holdBox(b); err != nil {
		return nil, err
	}
	secret := newSecret()
	if err := b.create(secret); err != nil {
		return nil, err
	}
	if s.kernel, err = d.launch(ctx, b, filepath.Base(d.opts.Runner), d.defaults); err != nil || !start {
		return s, err
	}
	// What takes long is done before there is a session.
	if err := d.volumes.MakeAhead(b.ahead()); err != nil {
		return nil, err
	}
	if s.kernel.watch, err = d.cpu.Group(b.id).WatchMemory(d.defaults.Limits.Memory); err != nil {
		return nil, err
	}
	if s.gate, err = runner.ListenAt(b.gateSocket()); err != nil {
		return nil, err
	}
	if err := s.kernel.start(); err != nil {
		return nil, err
	}
	return s, s.awaitRunner(ctx)
}

// awaitRunner returns once the runner waits at the gate.
func (s *spare) awaitRunner(ctx context.Context) error {
	_ = s.gate.SetDeadline(time.Now().Add(answerWithin))
	stop := context.AfterFunc(ctx, func() { _ = s.gate.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := s.gate.AcceptUnix()
	if err != nil {
		return fmt.Errorf("wait for the runner: %w", errors.Join(err, s.kernel.runnerLog(ctx)))
	}
	s.waiter = c
	return nil
}

// openGate lets the runner continue with its session.
func (s *spare) openGate() {
	_ = os.Remove(s.box.gateSocket())
	if s.waiter != nil {
		_ = s.waiter.Close()
	}
	_ = s.gate.Close()
}

// close releases what the spare needed to wait.
func (s *spare) close() {
	if s.gate != nil {
		s.openGate()
	}
	if s.held != nil {
		_ = os.Remove(s.box.holdFile())
		_ = s.held.Close()
	}
	if s.kernel != nil {
		s.kernel.close()
	}
}

// gateSocket is where the runner of a spare waits.
func (b box) gateSocket() string { return filepath.Join(b.run(), "bell") }

// holdFile is beside the box: it exists, and is locked, before the box exists.
func (b box) holdFile() string { return filepath.Join(filepath.Dir(b.dir), "."+b.id) }

// holdBox marks a box as a spare of this server. A sweep of the marks of dead servers
// takes the lock first: if the sweep was quicker, the mark is made again.
func holdBox(b box) (*os.File, error) {
	for {
		f, err := os.OpenFile(b.holdFile(), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("hold a sandbox: %w", err)
		}
		if err := flock.Lock(f, unix.LOCK_EX); err != nil {
			return nil, fmt.Errorf("hold a sandbox: %w", errors.Join(err, f.Close()))
		}
		mine, err := f.Stat()
		if there, e := os.Stat(b.holdFile()); err == nil && e == nil && os.SameFile(mine, there) {
			return f, nil
		}
		_ = f.Close()
	}
}

// removeHold removes a mark, unless a live server holds it.
func removeHold(name string) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if flock.Lock(f, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.Remove(name)
	}
}

// isSpare reports whether a live server holds the box as a spare.
func (b box) isSpare() bool {
	f, err := os.Open(b.holdFile())
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(flock.Lock(f, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
