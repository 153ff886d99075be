package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/internal/pidfd"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/inside"
	"github.com/dormouse-run/dormouse/sandbox"
)

// box is a running sandbox as this server reaches it.
type box struct {
	*runner.Link
	driver  *Driver
	place   place
	runner  *pidfd.Process
	gone    chan struct{}
	stop    context.CancelFunc
	watcher sync.WaitGroup
}

var (
	_ sandbox.Sandbox = (*box)(nil)
	_ sandbox.Machine = (*box)(nil)
)

// open links to the runner behind w and returns once it answers. It takes over
// w, and must be called with the place locked.
func (d *Driver) open(ctx context.Context, p place, f runner.Fence, w *pidfd.Process) (*box, error) {
	secret, err := p.readSecret()
	if err != nil {
		w.Close()
		return nil, err
	}
	log := d.log.With("session", p.session, "generation", p.generation)
	var link *runner.Link
	if err = p.fence().Raise(f); err == nil {
		link, err = runner.Listen(runner.LinkOptions{Path: p.socket(), Secret: secret, Fence: f, Known: p.fence(), Logger: log})
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	// The sandbox outlives this request, and so must the watcher.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	b := &box{Link: link, driver: d, place: p, runner: w, gone: make(chan struct{}), stop: stop}
	if err := b.answers(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.watcher.Go(func() { b.watch(watching) })
	return b, nil
}

// answers waits for the runner's first answer, or for its end.
func (b *box) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, runner.ErrUnreachable)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if b.runner.Wait(ctx) == nil {
			b.End(errors.New("the runner ended"))
		}
	}()
	err := b.Ready(ctx)
	cancel()
	<-ended
	return err
}

// Handle names the sandbox to any later server.
func (b *box) Handle() sandbox.Handle {
	h, err := json.Marshal(handle{Session: b.place.session, Generation: b.place.generation})
	if err != nil {
		panic(fmt.Sprintf("handle of %s: %v", b.place, err)) // two plain fields
	}
	return h
}

// Gone is closed once no process of the sandbox is left.
func (b *box) Gone() <-chan struct{} { return b.gone }

// Close disconnects from the sandbox, which keeps running.
func (b *box) Close() error {
	b.stop()
	err := b.Link.Close()
	b.watcher.Wait()
	b.runner.Close()
	return err
}

// watch cleans up once the runner has ended, and closes Gone.
func (b *box) watch(ctx context.Context) {
	if b.runner.Wait(ctx) != nil {
		return
	}
	for {
		err := b.cleanUp(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		b.driver.log.ErrorContext(ctx, "dead sandbox not cleared", "session", b.place.session, "generation", b.place.generation, "error", err)
		if sleep.For(ctx, time.Second) != nil {
			return
		}
	}
	// In this order: a caller that sees Gone closes the link, and calls waiting there
	// should fail with ErrGone.
	b.End(sandbox.ErrGone)
	close(b.gone)
}

// cleanUp ends the processes that a dead runner left behind. If another runner has taken
// its place, its starter has done so already. The PID file may still be locked with the
// PID of the dead runner, by a child it forked that has not called exec yet.
func (b *box) cleanUp(ctx context.Context) error {
	unlock, err := b.place.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if pid, err := inside.LivePID(b.place.dir); err != nil || pid != 0 && pid != b.runner.PID {
		return err
	}
	return b.driver.end(ctx, b.place)
}
