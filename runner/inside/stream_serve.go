package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
)

// maxStreams bounds the streams of one runner.
const maxStreams = 256

// stream is one connection that carries raw bytes.
type stream struct {
	id     string
	fence  runner.Fence // of the server that opened it
	cancel context.CancelFunc
	opened chan struct{} // closed once it is open or has failed
	err    error         // why it failed; written before opened is closed
	done   chan struct{} // closed once it can have no more effects
}

// endpoint is the end of a stream in the sandbox, ready to be connected.
type endpoint interface {
	// serve copies bytes until either end is done or ctx ends, which closes c. It leaves
	// no goroutine behind.
	serve(ctx context.Context, c *net.UnixConn)
	// release frees the resources of the endpoint.
	release()
}

// open registers a stream and starts it. A later bind cancels it.
func (r *Runner) open(ctx context.Context, k *conn, f runner.Frame) (*stream, error) {
	if f.Stream == nil || f.StreamID == "" || len(f.StreamID) > runner.MaxStreamID {
		return nil, fmt.Errorf("open without a stream: %w", dormouse.ErrInvalid)
	}
	if err := f.Stream.Validate(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(k, f); err != nil {
		return nil, err
	}
	if s := r.streams[f.StreamID]; s != nil {
		return s, nil
	}
	if len(r.streams) >= maxStreams {
		return nil, fmt.Errorf("%d streams are open, and no more can be: %w", maxStreams, dormouse.ErrConflict)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{
		id:     f.StreamID,
		fence:  r.fence,
		cancel: cancel,
		opened: make(chan struct{}),
		done:   make(chan struct{}),
	}
	r.streams[s.id] = s
	r.running.Go(func() {
		defer close(s.done)
		defer r.dropStream(s)
		defer cancel()
		r.serveStream(ctx, s, *f.Stream)
	})
	return s, nil
}

// answerOpen answers an open once the stream is open or has failed.
func (r *Runner) answerOpen(k *conn, f runner.Frame, s *stream, err error) {
	if err == nil {
		<-s.opened
		err = s.err
	}
	var a runner.Frame
	if err != nil {
		a.Refusal, a.Detail = runner.RefusalOf(err)
	}
	k.answer(f, a)
}

func (r *Runner) dropStream(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.streams, s.id)
}

// serveStream prepares the endpoint, then connects to the server, so that the server
// gets a stream only if both ends work.
func (r *Runner) serveStream(ctx context.Context, s *stream, what runner.Stream) {
	src, err := r.endpoint(ctx, what)
	var c *net.UnixConn
	if err == nil {
		defer src.release()
		c, err = r.dialStream(ctx, s.id)
	}
	s.err = err
	close(s.opened)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	src.serve(ctx, c)
}

func (r *Runner) endpoint(ctx context.Context, s runner.Stream) (endpoint, error) {
	switch {
	case s.Terminal != nil:
		return r.attachTerminal(ctx, *s.Terminal)
	case s.Port != nil:
		return r.dialPort(ctx, s.Port.Port)
	case s.Tree != nil && s.Tree.Put:
		return r.putTree(s.Tree.Path)
	case s.Tree != nil:
		return r.getTree(s.Tree.Path)
	default:
		return r.watch(*s.Watch)
	}
}

// errNotPaired means that the server accepted the connection but did not answer.
var errNotPaired = errors.New("the server did not answer")

// dialStream connects to the server that waits for the stream id. It retries if the
// server has too many handshakes.
func (r *Runner) dialStream(ctx context.Context, id string) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, runner.DefaultReconnectTimeout)
	defer cancel()
	for wait := firstRedial; ; wait = min(2*wait, lastRedial) {
		c, err := r.pairStream(ctx, id)
		if err == nil || errors.Is(err, dormouse.ErrInvalid) {
			return c, err
		}
		_ = sleep.For(ctx, wait)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connect the stream: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
}

func (r *Runner) pairStream(ctx context.Context, id string) (_ *net.UnixConn, err error) {
	secret, err := os.ReadFile(r.opts.SecretFile)
	if err != nil {
		return nil, err
	}
	c, _, err := runner.Dial(r.opts.Socket)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	paced := runner.DeadlineConn{UnixConn: c, Heartbeat: r.opts.Heartbeat}
	hello := runner.Frame{Kind: runner.KindStream, StreamID: id, Hello: &runner.Hello{Protocol: runner.Protocol, Secret: strings.TrimSpace(string(secret))}}
	b, err := runner.AppendFrame(nil, hello)
	if err != nil {
		return nil, err
	}
	if _, err := paced.Write(b); err != nil {
		return nil, err
	}
	f, err := runner.ReadFrame(paced, runner.FromServer())
	if err != nil {
		return nil, errors.Join(errNotPaired, err)
	}
	if f.Kind != runner.KindBound {
		return nil, fmt.Errorf("the server does not wait for this stream: %w", dormouse.ErrInvalid)
	}
	return c, c.SetDeadline(time.Time{})
}

// answerQuery answers a request that starts no op and no stream.
func (r *Runner) answerQuery(k *conn, f runner.Frame) runner.Frame {
	var a runner.Frame
	var err error
	switch f.Kind { //nolint:exhaustive // the rest are answered elsewhere
	case runner.KindTerminals:
		a.Terminals, err = r.reportTerminals(k, f)
	case runner.KindResize:
		err = r.resizeTerminal(k, f)
	case runner.KindEndTerminal:
		err = r.stopTerminal(k, f)
	case runner.KindPorts:
		a.Ports, err = r.ports(k, f)
	case runner.KindUsage:
		a.Usage, err = r.usage(k, f)
	case runner.KindRelieve:
		a.Victims, err = r.relieve(k, f)
	}
	if err != nil {
		a.Refusal, a.Detail = runner.RefusalOf(err)
	}
	return a
}

// endStreams cancels and returns the streams for whose fence ours is false. It must be
// called with mu held.
func (r *Runner) endStreams(ours func(runner.Fence) bool) []*stream {
	var ended []*stream
	for _, s := range r.streams {
		if !ours(s.fence) {
			s.cancel()
			ended = append(ended, s)
		}
	}
	return ended
}

// waitStreams returns once the streams can have no more effects.
func waitStreams(streams []*stream) {
	for _, s := range streams {
		<-s.done
	}
}

// quiesce ends every op and every stream, answers, and closes k. It reports whether it
// did so.
func (r *Runner) quiesce(k *conn, f runner.Frame) bool {
	r.mu.Lock()
	err := r.admit(k, f)
	var streams []*stream
	if err == nil {
		streams = r.endStreams(func(runner.Fence) bool { return false })
	}
	r.mu.Unlock()
	if err != nil {
		why, detail := runner.RefusalOf(err)
		k.answer(f, runner.Frame{Refusal: why, Detail: detail})
		return false
	}
	waitStreams(streams)
	r.endOps()
	k.closeAfter(runner.Frame{Kind: runner.KindReply, ID: f.ID})
	<-k.done
	return true
}

// endOps ends every running op. A server that quiesces the runner no longer waits for
// them, and they must have no effect later. Tasks, shells and terminals keep running.
func (r *Runner) endOps() {
	r.mu.Lock()
	var running []*op
	for _, o := range r.ops {
		if !o.finished() {
			running = append(running, o)
		}
	}
	r.mu.Unlock()
	for _, o := range running {
		o.kill()
	}
	late := time.NewTimer(endTimeout)
	defer late.Stop()
	for _, o := range running {
		select {
		case <-o.done:
		case <-late.C:
			return
		}
	}
}

// waitHangup returns once the peer has closed both directions. It must be called by the
// reader of c, after it has read to the end.
func waitHangup(c *net.UnixConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd)}} //nolint:gosec // descriptors are small
		n, err := unix.Poll(p, 0)
		return err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
}

// discard reads and drops what c sends until its peer is gone.
func discard(c *net.UnixConn) {
	_, _ = io.Copy(io.Discard, c)
	waitHangup(c)
}
