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

// pool holds sandboxes that are nobody's yet, so that neither a new session nor one
// that wakes need wait for a kernel. Those for new sessions are started, and wait at
// a bell.
type pool struct {
	ready   chan *spare
	blank   chan *spare   // in which nothing runs
	want    chan struct{} // holds one: a spare was taken
	stop    context.CancelFunc
	running sync.WaitGroup
}

// spare is a sandbox without a session: one that is started and whose runner waits
// at the bell, or one in which nothing runs yet, for memory to be restored to.
type spare struct {
	box    box
	kernel *sentry
	bell   *net.UnixListener // nil if nothing runs
	ring   *net.UnixConn     // the runner, waiting
	// held is locked as long as this server lives: nobody else may sweep the box.
	held *os.File
}

// Spares is how many sandboxes are ready for sessions to come, and how many for
// sessions to wake in.
func (d *Driver) Spares() (started, blank int) { return len(d.pool.ready), len(d.pool.blank) }

const (
	// poolAgain is how long nothing is made ahead after that failed.
	poolAgain = 5 * time.Second
	// poolPause leaves the processors to whoever has just taken a spare.
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
				d.log.WarnContext(ctx, "no sandbox made ahead", "error", err)
				_ = sleep.For(ctx, poolAgain)
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
	return d.end(ctx, s.box, volume{dir: d.path("none")})
}

// claim takes a spare of a kind that still lives, nil if there is none. What is left
// of one that died goes, since nobody else knows of it until the next server starts.
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

// makeSpare makes a sandbox ahead, and starts it unless memory is to be restored to
// it.
func (d *Driver) makeSpare(ctx context.Context, start bool) (_ *spare, err error) {
	if start && d.template != "" {
		if err := d.fitsSpare(); err != nil {
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
			err = errors.Join(err, d.end(undo, b, volume{dir: d.path("none")}))
		}
	}()
	if s.held, err = hold(b); err != nil {
		return nil, err
	}
	secret := newSecret()
	if err := b.make(secret); err != nil {
		return nil, err
	}
	if s.kernel, err = d.launch(ctx, b, filepath.Base(d.opts.Runner), d.usual); err != nil || !start {
		return s, err
	}
	// What takes long is done before the session comes.
	if err := d.volumeAhead(b); err != nil {
		return nil, err
	}
	if s.kernel.watch, err = d.cgroupOf(b).watchMemory(d.usual.Limits.Memory); err != nil {
		return nil, err
	}
	if s.bell, err = runner.ListenAt(b.bell()); err != nil {
		return nil, err
	}
	if err := s.kernel.start(); err != nil {
		return nil, err
	}
	return s, s.waiting(ctx)
}

// waiting returns once the runner stands at the bell.
func (s *spare) waiting(ctx context.Context) error {
	_ = s.bell.SetDeadline(time.Now().Add(answerWithin))
	stop := context.AfterFunc(ctx, func() { _ = s.bell.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := s.bell.AcceptUnix()
	if err != nil {
		return fmt.Errorf("wait for the runner: %w", errors.Join(err, s.kernel.complaint(ctx)))
	}
	s.ring = c
	return nil
}

// call lets the runner go on to its session.
func (s *spare) call() {
	_ = os.Remove(s.box.bell())
	if s.ring != nil {
		_ = s.ring.Close()
	}
	_ = s.bell.Close()
}

// close lets go of what the spare needed to wait.
func (s *spare) close() {
	if s.bell != nil {
		s.call()
	}
	if s.held != nil {
		_ = os.Remove(s.box.hold())
		_ = s.held.Close()
	}
	if s.kernel != nil {
		s.kernel.close()
	}
}

func (b box) bell() string { return filepath.Join(b.run(), "bell") }

// hold is beside the box: it is there, and locked, before the box is.
func (b box) hold() string { return filepath.Join(filepath.Dir(b.dir), "."+b.id) }

// hold marks a box as a spare of this server. Whoever clears away what ended
// servers held takes the lock first: if that was quicker, the mark is made again.
func hold(b box) (*os.File, error) {
	for {
		f, err := os.OpenFile(b.hold(), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("hold a sandbox: %w", err)
		}
		if err := flock.Lock(f, unix.LOCK_EX); err != nil {
			return nil, fmt.Errorf("hold a sandbox: %w", errors.Join(err, f.Close()))
		}
		mine, err := f.Stat()
		if there, e := os.Stat(b.hold()); err == nil && e == nil && os.SameFile(mine, there) {
			return f, nil
		}
		_ = f.Close()
	}
}

// drop removes what a box was held by, unless a server that lives holds it.
func drop(name string) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if flock.Lock(f, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.Remove(name)
	}
}

// isSpare reports whether a server that lives holds the box ready.
func (b box) isSpare() bool {
	f, err := os.Open(b.hold())
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(flock.Lock(f, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
