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

	"github.com/dormouse-run/dormouse/runner"
)

// pool holds sandboxes that are started and nobody's yet, so that a new session
// need not wait for a kernel. Each waits at a bell for its session.
type pool struct {
	ready   chan *spare
	want    chan struct{} // holds one: a spare was taken
	stop    context.CancelFunc
	running sync.WaitGroup
}

// spare is a sandbox without a session.
type spare struct {
	box    box
	kernel *sentry
	bell   *net.UnixListener
	ring   *net.UnixConn // the runner, waiting
	// held is locked as long as this server lives: nobody else may sweep the box.
	held *os.File
}

// Spares is how many sandboxes are ready for sessions to come.
func (d *Driver) Spares() int { return len(d.pool.ready) }

const poolAgain = 5 * time.Second

// fillPool keeps n spares ready.
func (d *Driver) fillPool(n int) {
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the driver
	d.pool = pool{ready: make(chan *spare, n), want: make(chan struct{}, 1), stop: stop}
	d.pool.running.Go(func() {
		for ctx.Err() == nil {
			if len(d.pool.ready) == n {
				select {
				case <-ctx.Done():
				case <-d.pool.want:
				}
				continue
			}
			s, err := d.makeSpare(ctx)
			if err != nil {
				d.log.WarnContext(ctx, "no sandbox made ahead", "error", err)
				_ = sleep(ctx, poolAgain)
				continue
			}
			d.pool.ready <- s // only we send, and there is room
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
	var errs []error
	for {
		select {
		case s := <-d.pool.ready:
			s.close()
			ctx, cancel := context.WithTimeout(context.Background(), undoWithin) //nolint:forbidigo // closing takes no context
			errs = append(errs, d.end(ctx, s.box, volume{dir: d.path("none")}))
			cancel()
		default:
			d.pool.stop = nil
			return errors.Join(errs...)
		}
	}
}

// claim takes a spare that still lives, nil if there is none.
func (d *Driver) claim() *spare {
	for {
		select {
		case s := <-d.pool.ready:
			select {
			case d.pool.want <- struct{}{}:
			default:
			}
			if s.kernel.alive() {
				return s
			}
			s.close()
		default:
			return nil
		}
	}
}

func (d *Driver) makeSpare(ctx context.Context) (_ *spare, err error) {
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
	if err := errors.Join(b.make(secret), b.bound(secret)); err != nil {
		return nil, err
	}
	if s.bell, err = runner.ListenAt(b.bell()); err != nil {
		return nil, err
	}
	if s.kernel, err = d.launch(b, filepath.Base(d.opts.Runner)); err != nil {
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
		return fmt.Errorf("wait for the runner: %w", errors.Join(err, s.box.complaint()))
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

// hold marks a box as a spare of this server.
func hold(b box) (*os.File, error) {
	f, err := os.OpenFile(b.hold(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hold a sandbox: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("hold a sandbox: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}

// isSpare reports whether a server that lives holds the box ready.
func (b box) isSpare() bool {
	f, err := os.Open(b.hold())
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
