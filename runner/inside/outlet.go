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
	maxOutlets = 512
	// outletSilence is a little more than the proxy's own patience: it ends
	// what a restore cut off without either end noticing.
	outletSilence = 6 * time.Minute
	// outletGoodbye is how long a program may take to read that it is refused.
	outletGoodbye = 2 * time.Second
)

// Outlet is the inside end of the way out: it joins TCP, which programs speak,
// to the unix socket that the sandbox was given. It keeps nothing of the socket
// between two connections, so that after a restore the next one finds whatever
// is at its path then.
type Outlet struct {
	listener net.Listener
	socket   string
	log      *slog.Logger

	stop    context.CancelFunc
	running sync.WaitGroup
}

// ListenOutlet listens at addr, or at DefaultOutlet if that is empty, and
// carries each connection to the unix socket until ctx ends or it is closed.
// The socket need not be there.
func ListenOutlet(ctx context.Context, addr, socket string, log *slog.Logger) (*Outlet, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", cmp.Or(addr, runner.DefaultOutlet))
	if err != nil {
		return nil, fmt.Errorf("listen for programs that go out: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	o := &Outlet{listener: l, socket: socket, log: cmp.Or(log, slog.New(slog.DiscardHandler)), stop: stop}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	o.running.Go(func() { o.accept(ctx) })
	return o, nil
}

// Addr is where the outlet listens.
func (o *Outlet) Addr() net.Addr { return o.listener.Addr() }

// Close ends the outlet and every connection it carries.
func (o *Outlet) Close() error {
	o.stop()
	err := o.listener.Close()
	o.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept takes connections as long as there is room; others wait. An error is
// no reason to stop: only the outlet's end is.
func (o *Outlet) accept(ctx context.Context) {
	room := make(chan struct{}, maxOutlets)
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
			o.log.WarnContext(ctx, "outlet cannot accept", "error", err)
			_ = sleep.For(ctx, wait)
			wait = min(2*wait, lastRedial)
			continue
		}
		wait = firstRedial
		o.running.Go(func() {
			defer func() { <-room }()
			o.carry(ctx, c)
		})
	}
}

// carry joins one connection to the socket.
func (o *Outlet) carry(ctx context.Context, inside net.Conn) {
	defer func() { _ = inside.Close() }()
	outside, _, err := runner.Dial(o.socket)
	if err != nil {
		defer context.AfterFunc(ctx, func() { _ = inside.Close() })()
		if !errors.Is(err, fs.ErrNotExist) {
			o.log.DebugContext(ctx, "outlet cannot reach the proxy", "error", err)
		}
		turnAway(inside, err)
		return
	}
	defer func() { _ = outside.Close() }()
	cut := func() {
		_ = inside.Close()
		_ = outside.Close()
	}
	defer context.AfterFunc(ctx, cut)()
	silence := time.AfterFunc(outletSilence, cut)
	defer silence.Stop()
	var back sync.WaitGroup
	back.Go(func() { pour(inside, outside, silence) })
	pour(outside, inside, silence)
	back.Wait()
}

// pour copies one way and passes its end on. The other way goes on.
func pour(to, from net.Conn, silence *time.Timer) {
	_, _ = io.Copy(to, &stirring{from, silence})
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	if half, ok := from.(interface{ CloseRead() error }); ok {
		_ = half.CloseRead() // if nobody takes it, its sender should know
	}
}

// stirring is a reader whose bytes put silence off.
type stirring struct {
	io.Reader
	silence *time.Timer
}

func (s *stirring) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if n > 0 {
		s.silence.Reset(outletSilence)
	}
	return n, err
}

// turnAway tells a program why it cannot go out, and waits for it to have read
// that: closing earlier could take the answer back.
func turnAway(c net.Conn, why error) {
	text := "dormouse: the network of this sandbox is off.\n"
	if !errors.Is(why, fs.ErrNotExist) {
		text = "dormouse: the way out of this sandbox cannot be reached just now.\n"
	}
	_ = c.SetDeadline(time.Now().Add(outletGoodbye))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c, 64<<10)
}
