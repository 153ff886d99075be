//go:build linux

package gvisor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// live is a living sandbox as this server reaches it.
type live struct {
	*runner.Link
	driver  *Driver
	handle  handle
	box     box
	record  record
	made    made
	files   volume
	kernel  *sentry
	heed    *attention
	memory  *memoryWatch // nil if this machine ends a sandbox that reaches its limit
	gone    chan struct{}
	cause   error // why it died, if that is known; written before the link is over
	stop    context.CancelFunc
	watcher sync.WaitGroup

	starving atomic.Bool // it is above its memory limit
	reliefs  chan string // holds one: which processes were ended
}

var (
	_ sandbox.Sandbox = (*live)(nil)
	_ sandbox.Woken   = (*live)(nil)
	_ sandbox.Imaged  = (*live)(nil)
	_ sandbox.Mourned = (*live)(nil)
	_ sandbox.Stocked = (*live)(nil)

	_ sandbox.Relieved = (*live)(nil)
)

// open links to the runner in a box, which start has run, and returns once it
// answers. It takes over k, and must be called with the session locked.
func (d *Driver) open(ctx context.Context, h handle, b box, f runner.Fence, k *sentry, m made, start func() error) (*live, error) {
	secret, err := b.secret()
	if err != nil {
		k.close()
		return nil, err
	}
	log := d.log.With("session", h.Session, "generation", h.Generation)
	heed := d.crowd.join(b, d.cgroupOf(b), log)
	defer heed.hold()()
	var link *runner.Link
	err = b.fence().Raise(f)
	if err == nil {
		err = d.outlets.open(b, h.Session, m, k.c.SandboxPid())
	}
	if err == nil {
		link, err = runner.Listen(runner.LinkOptions{Path: b.socket(), Secret: secret, Fence: f, Known: b.fence(), Logger: log, Attention: heed})
	}
	if err != nil {
		d.crowd.leave(b, heed)
		k.close()
		return nil, err
	}
	// The watch is over what lives on after this request.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &live{Link: link, driver: d, handle: h, box: b, made: m, files: d.filesOf(h, m), kernel: k, heed: heed, gone: make(chan struct{}), stop: stop, reliefs: make(chan string, 1)}
	headroom := int64(mostHeadroom)
	if m.build {
		headroom = buildHeadroom
	}
	d.reserves.join(l.files, headroom)
	l.watcher.Go(func() { k.endWithFiles(watching) })
	armed := make(chan error, 1)
	go func() { armed <- l.watchMemory(watching) }() // which takes about as long as to start
	if start != nil {
		err = start()
	}
	if err = errors.Join(err, <-armed); err == nil {
		err = l.answers(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, k.complaint(ctx), l.Close())
	}
	l.watcher.Go(func() { l.watch(watching) })
	return l, nil
}

// filesOf is the volume that a sandbox writes to: its session's, or that of the
// packages which are installed in it.
func (d *Driver) filesOf(h handle, m made) volume {
	if m.build {
		if l, err := d.stockOf(m.Stock); err == nil {
			return l.volume
		}
	}
	return d.volumeOf(h.Session)
}

// haveRunOn sees to it, until ctx ends, that a sandbox runs which a server may have
// told to stand still at the very last.
func (l *live) haveRunOn(ctx context.Context) {
	for sleep.For(ctx, stillEvery) == nil {
		if err := l.driver.goOn(ctx, l.kernel, l.box); err != nil && ctx.Err() == nil {
			l.driver.log.WarnContext(ctx, "sandbox may stand still", "session", l.handle.Session, "error", err)
		}
	}
}

// stillEvery is how often that is looked at.
const stillEvery = 500 * time.Millisecond

// watchMemory has somebody there when the sandbox runs out of memory.
func (l *live) watchMemory(ctx context.Context) (err error) {
	if l.memory, l.kernel.watch = l.kernel.watch, nil; l.memory == nil {
		l.memory, err = l.driver.cgroupOf(l.box).watchMemory(l.made.Limits.Memory)
	}
	if err == nil && l.memory != nil {
		l.watcher.Go(func() { l.memory.run(ctx) })
		l.watcher.Go(func() { l.relieve(ctx) })
	}
	return err
}

// answers waits for the runner's first answer, or for the kernel's end.
func (l *live) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, runner.ErrUnreachable)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if l.kernel.proc.Wait(ctx) == nil {
			l.End(errors.New("the sandbox ended"))
		}
	}()
	waking := make(chan struct{})
	go func() {
		defer close(waking)
		l.haveRunOn(ctx)
	}()
	err := l.Ready(ctx)
	cancel()
	<-ended
	<-waking
	return err
}

// Handle names the sandbox to any later server.
func (l *live) Handle() sandbox.Handle { return l.handle.encode() }

// Processes says what became of the processes of the generation before.
func (l *live) Processes() sandbox.Processes {
	return sandbox.Processes{Kept: l.record.Kept, Lost: l.record.Lost}
}

// Image is the digest of the image that the sandbox was made from.
func (l *live) Image() string { return l.made.Image }

// Missing says which packages of its environment it has not, and why.
func (l *live) Missing() string { return l.made.Missing }

// Gone is closed once nothing of the sandbox is left.
func (l *live) Gone() <-chan struct{} { return l.gone }

// Reliefs says which processes were ended for lack of memory, if no op does.
func (l *live) Reliefs() <-chan string { return l.reliefs }

// Cause says why the sandbox died, if that is known.
func (l *live) Cause() error {
	select {
	case <-l.Over():
		return l.cause
	default:
		return nil
	}
}

// Close lets go of the sandbox, which lives on.
func (l *live) Close() error {
	l.stop()
	err := l.Link.Close()
	l.watcher.Wait()
	l.driver.crowd.leave(l.box, l.heed)
	l.driver.reserves.leave(l.files)
	err = errors.Join(err, l.memory.close())
	l.kernel.close()
	return err
}

// watch clears up once the kernel has ended and then says so.
func (l *live) watch(ctx context.Context) {
	if l.kernel.proc.Wait(ctx) != nil {
		return
	}
	l.cause = l.driver.starved(l.box, l.made, l.starving.Load())
	for {
		err := l.clear(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		l.driver.log.ErrorContext(ctx, "dead sandbox not cleared", "session", l.handle.Session, "generation", l.handle.Generation, "error", err)
		if sleep.For(ctx, time.Second) != nil {
			return
		}
	}
	// In this order: whoever hears of it lets go of the link, and who waits there
	// should be told why.
	l.End(sandbox.ErrGone)
	close(l.gone)
}

// clear takes away what a dead kernel left.
func (l *live) clear(ctx context.Context) error {
	v := l.driver.volumeOf(l.handle.Session)
	if l.made.build {
		v = volume{dir: l.driver.path("none")} // it is not the session's own
	}
	unlock, err := v.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return l.driver.end(ctx, l.box, v)
}
