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
	"github.com/dormouse-run/dormouse/sandbox/gvisor/cgroup"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

// live is a sandbox that this server is attached to.
type live struct {
	*runner.Link
	driver   *Driver
	handle   handle
	box      box
	record   record
	spec     boxSpec
	files    volume.Volume
	kernel   *sentry
	priority *cgroup.Priority
	memory   *cgroup.MemoryWatch // nil if there is no limit
	gone     chan struct{}
	cause    error // why it died, if that is known; written before the link ends
	stop     context.CancelFunc
	watcher  sync.WaitGroup

	overLimit atomic.Bool // it is above its memory limit
	oomKills  chan string // holds one: which processes were killed
}

var (
	_ sandbox.Sandbox         = (*live)(nil)
	_ sandbox.Restored        = (*live)(nil)
	_ sandbox.FromImage       = (*live)(nil)
	_ sandbox.ExitReporter    = (*live)(nil)
	_ sandbox.PackageReporter = (*live)(nil)

	_ sandbox.OOMReporter = (*live)(nil)
)

// open links to the runner in a box, after it has called start, and returns once the
// runner answers. It takes over k, and must be called with the session locked.
func (d *Driver) open(ctx context.Context, h handle, b box, f runner.Fence, k *sentry, m boxSpec, start func() error) (*live, error) {
	secret, err := b.secret()
	if err != nil {
		k.close()
		return nil, err
	}
	log := d.log.With("session", h.Session, "generation", h.Generation)
	priority := d.cpu.Join(b.id, log)
	defer priority.Hold()()
	var link *runner.Link
	err = b.fence().Raise(f)
	if err == nil {
		err = d.egress.open(b, h.Session, m, k.c.SandboxPid())
	}
	if err == nil {
		link, err = runner.Listen(runner.LinkOptions{Path: b.socket(), Secret: secret, Fence: f, Known: b.fence(), Logger: log, Priority: priority})
	}
	if err != nil {
		d.cpu.Leave(b.id, priority)
		k.close()
		return nil, err
	}
	// The sandbox outlives this request, and so does watching it.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &live{Link: link, driver: d, handle: h, box: b, spec: m, files: d.filesOf(h, m), kernel: k, priority: priority, gone: make(chan struct{}), stop: stop, oomKills: make(chan string, 1)}
	headroom := int64(volume.MaxHeadroom)
	if m.build {
		headroom = volume.BuildHeadroom
	}
	d.volumes.Join(l.files, headroom)
	l.watcher.Go(func() { k.endWithFiles(watching) })
	armed := make(chan error, 1)
	go func() { armed <- l.watchMemory(watching) }() // it takes about as long as to start
	if start != nil {
		err = start()
	}
	if err = errors.Join(err, <-armed); err == nil {
		err = l.answers(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, k.runnerLog(ctx), l.Close())
	}
	l.watcher.Go(func() { l.watch(watching) })
	return l, nil
}

// filesOf is the volume that a sandbox writes to: its session's, or that of the package
// layer that is being built.
func (d *Driver) filesOf(h handle, m boxSpec) volume.Volume {
	if m.build {
		if l, err := d.packageLayer(m.PackageLayer); err == nil {
			return l.volume
		}
	}
	return d.session(h.Session).Volume
}

// keepResumed resumes, until ctx ends, a sandbox that a server may have paused just before
// it was killed.
func (l *live) keepResumed(ctx context.Context) {
	for sleep.For(ctx, resumeEvery) == nil {
		if err := l.driver.resumeLeft(ctx, l.kernel, l.box); err != nil && ctx.Err() == nil {
			l.driver.log.WarnContext(ctx, "sandbox may still be paused", "session", l.handle.Session, "error", err)
		}
	}
}

// resumeEvery is how often that is checked.
const resumeEvery = 500 * time.Millisecond

// watchMemory starts what kills processes above the memory limit.
func (l *live) watchMemory(ctx context.Context) (err error) {
	if l.memory, l.kernel.watch = l.kernel.watch, nil; l.memory == nil {
		l.memory, err = l.driver.cpu.Group(l.box.id).WatchMemory(l.spec.Limits.Memory)
	}
	if err == nil && l.memory != nil {
		l.watcher.Go(func() { l.memory.Run(ctx) })
		l.watcher.Go(func() { l.killOverLimit(ctx) })
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
		l.keepResumed(ctx)
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

// ImageDigest is the digest of the image that the sandbox was made from.
func (l *live) ImageDigest() string { return l.spec.Image }

// MissingPackages says which packages of its environment are not installed, and why.
func (l *live) MissingPackages() string { return l.spec.Missing }

// Gone is closed once nothing of the sandbox is left.
func (l *live) Gone() <-chan struct{} { return l.gone }

// OOMKills says which processes were killed at the memory limit, if no op reports it.
func (l *live) OOMKills() <-chan string { return l.oomKills }

// ExitCause says why the sandbox died, if that is known.
func (l *live) ExitCause() error {
	select {
	case <-l.Over():
		return l.cause
	default:
		return nil
	}
}

// Close detaches from the sandbox, which lives on.
func (l *live) Close() error {
	l.stop()
	err := l.Link.Close()
	l.watcher.Wait()
	l.driver.cpu.Leave(l.box.id, l.priority)
	l.driver.volumes.Leave(l.files)
	err = errors.Join(err, l.memory.Close())
	l.kernel.close()
	return err
}

// watch cleans up once the kernel has ended, and then reports it.
func (l *live) watch(ctx context.Context) {
	if l.kernel.proc.Wait(ctx) != nil {
		return
	}
	l.cause = l.driver.outOfMemory(l.box, l.spec, l.overLimit.Load())
	for {
		err := l.cleanUp(ctx)
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
	// In this order: a caller that sees that it is gone closes the link, and requests that
	// wait there should be told why.
	l.End(sandbox.ErrGone)
	close(l.gone)
}

// cleanUp removes what a dead kernel has left.
func (l *live) cleanUp(ctx context.Context) error {
	v := l.driver.session(l.handle.Session)
	if l.spec.build {
		v = l.driver.noSession() // it is not the session's own
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return l.driver.end(ctx, l.box, v)
}
