package inside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
)

const (
	maxEgressConns = 512
	// egressIdleTimeout is a little longer than the proxy's own timeout. It ends
	// connections that a restore broke without either end noticing.
	egressIdleTimeout = 6 * time.Minute
	// refuseTimeout is how long a program may take to read a refusal.
	refuseTimeout = 2 * time.Second
)

// EgressForwarder forwards TCP connections of programs to the unix socket of the egress
// proxy. It dials the socket for every connection, so that after a restore the next
// connection reaches the new socket at that path.
type EgressForwarder struct {
	listener net.Listener
	socket   string
	log      *slog.Logger

	stop    context.CancelFunc
	running sync.WaitGroup
}

// ListenEgress listens at addr, or at runner.DefaultEgressAddr if that is empty, and
// forwards each connection to the unix socket until ctx ends or it is closed. The
// socket need not exist yet.
func ListenEgress(ctx context.Context, addr, socket string, log *slog.Logger) (*EgressForwarder, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", cmp.Or(addr, runner.DefaultEgressAddr))
	if err != nil {
		return nil, fmt.Errorf("listen for programs that go out: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	o := &EgressForwarder{listener: l, socket: socket, log: cmp.Or(log, slog.New(slog.DiscardHandler)), stop: stop}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	o.running.Go(func() { o.accept(ctx) })
	return o, nil
}

// Addr is where the forwarder listens.
func (o *EgressForwarder) Addr() net.Addr { return o.listener.Addr() }

// Close ends the forwarder and its connections.
func (o *EgressForwarder) Close() error {
	o.stop()
	err := o.listener.Close()
	o.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept accepts connections up to maxEgressConns; more wait. It retries errors until
// the forwarder is closed.
func (o *EgressForwarder) accept(ctx context.Context) {
	room := make(chan struct{}, maxEgressConns)
	wait := firstRedial
	for {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := o.listener.Accept()
		if err != nil {
			<-room
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			o.log.WarnContext(ctx, "egress connection not accepted", "error", err)
			_ = sleep.For(ctx, wait)
			wait = min(2*wait, lastRedial)
			continue
		}
		wait = firstRedial
		o.running.Go(func() {
			defer func() { <-room }()
			o.forward(ctx, c)
		})
	}
}

// forward forwards one connection to the socket.
func (o *EgressForwarder) forward(ctx context.Context, inside net.Conn) {
	defer func() { _ = inside.Close() }()
	outside, _, err := runner.Dial(o.socket)
	if err != nil {
		defer context.AfterFunc(ctx, func() { _ = inside.Close() })()
		if !errors.Is(err, fs.ErrNotExist) {
			o.log.DebugContext(ctx, "egress proxy not reached", "error", err)
		}
		refuse(inside, err)
		return
	}
	defer func() { _ = outside.Close() }()
	cut := func() {
		_ = inside.Close()
		_ = outside.Close()
	}
	defer context.AfterFunc(ctx, cut)()
	silence := time.AfterFunc(egressIdleTimeout, cut)
	defer silence.Stop()
	var back sync.WaitGroup
	back.Go(func() { copyHalf(inside, outside, silence) })
	copyHalf(outside, inside, silence)
	back.Wait()
}

// copyHalf copies one direction and half-closes it at its end.
func copyHalf(to, from net.Conn, silence *time.Timer) {
	_, _ = io.Copy(to, &idleResetReader{from, silence})
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	if half, ok := from.(interface{ CloseRead() error }); ok {
		_ = half.CloseRead() // the sender learns that its data is not read
	}
}

// idleResetReader restarts the idle timer at every read.
type idleResetReader struct {
	io.Reader
	idle *time.Timer
}

func (s *idleResetReader) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if n > 0 {
		s.idle.Reset(egressIdleTimeout)
	}
	return n, err
}

// refuse answers a program with the reason, and waits until it has read the answer:
// closing earlier could discard it.
func refuse(c net.Conn, why error) {
	text := "dormouse: the network of this sandbox is off.\n"
	if !errors.Is(why, fs.ErrNotExist) {
		text = "dormouse: the way out of this sandbox cannot be reached just now.\n"
	}
	_ = c.SetDeadline(time.Now().Add(refuseTimeout))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c, 64<<10)
}
