package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// looks is how often within the idle time a tunnel is looked at.
const looks = 5

// tunnel answers CONNECT: it reaches the target and then carries bytes.
// A program may end its side at once and still wait for an answer, so that the
// request's own context says nothing here.
func (w *sessionProxy) tunnel(ctx context.Context, rw http.ResponseWriter, rec *record, limited bool) {
	granted, err := w.grants(ctx)
	if err != nil {
		fail(ctx, rw, rec, err)
		return
	}
	if len(covering(granted, rec.to)) > 0 {
		w.intercept(ctx, rw, rec)
		return
	}
	outside, err := w.proxy.dial(ctx, rec.to)
	if err != nil {
		fail(ctx, rw, rec, err)
		return
	}
	defer func() { _ = outside.Close() }()
	inside, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		fail(ctx, rw, rec, err)
		return
	}
	defer func() { _ = inside.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = inside.Close()
		_ = outside.Close()
	})
	defer stop()
	_ = inside.SetWriteDeadline(time.Now().Add(w.proxy.opts.IdleTimeout))
	if _, err = io.WriteString(inside, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		err = w.splice(inside, buffered.Reader, outside, rec, limited)
	}
	var no *refusal
	switch {
	case ctx.Err() != nil:
		rec.verdict = verdictGone
	case errors.As(err, &no):
		rec.verdict = verdictRefused
	case errors.Is(err, errSilent):
		rec.verdict = verdictTimeout
	}
	rec.err = err
}

// splice carries what a tunnel is for. On a limited network the program's ClientHello has
// to name the host that was asked for.
func (w *sessionProxy) splice(inside net.Conn, buffered *bufio.Reader, outside net.Conn, rec *record, limited bool) error {
	idle := w.proxy.opts.IdleTimeout
	if !limited || w.proxy.opts.Credentials == nil {
		if err := early(outside, buffered, rec, idle); err != nil {
			return err
		}
		return join(bare(inside), outside, idle, rec)
	}
	return joinAfter(bare(inside), outside, idle, rec, func(p *pair) error {
		if err := p.compare(inside, buffered, outside, rec, w.proxy.opts.HeaderTimeout); err != nil {
			return err
		}
		return early(outside, buffered, rec, idle)
	})
}

// early sends on what came along with the head.
func early(to net.Conn, from *bufio.Reader, rec *record, patience time.Duration) error {
	head, err := from.Peek(from.Buffered())
	if err != nil || len(head) == 0 {
		return err
	}
	_ = to.SetWriteDeadline(time.Now().Add(patience))
	n, err := to.Write(head)
	rec.sent.Add(int64(n))
	return err
}

// bare is the connection beneath ours, which the kernel can splice.
func bare(c net.Conn) net.Conn {
	if k, ok := c.(*counted); ok {
		return k.Conn
	}
	return c
}

// join carries bytes both ways. An end of one way is passed on as such, and the
// other way goes on; a break or silence ends both.
func join(inside, outside net.Conn, idle time.Duration, rec *record) error {
	return joinAfter(inside, outside, idle, rec, func(*pair) error { return nil })
}

// joinAfter carries what comes from inside once first has no objection. The other way
// does not wait, as with some protocols the far end speaks first.
func joinAfter(inside, outside net.Conn, idle time.Duration, rec *record, first func(*pair) error) error {
	t := &pair{idle: idle, start: time.Now()}
	var back error
	var running sync.WaitGroup
	running.Go(func() { back = t.carry(inside, outside, &rec.received) })
	if err := first(t); err != nil {
		_ = inside.Close()
		_ = outside.Close()
		running.Wait()
		return err
	}
	forth := t.carry(outside, inside, &rec.sent)
	running.Wait()
	return errors.Join(forth, back)
}

// pair is two ways that are silent only together.
type pair struct {
	idle   time.Duration
	start  time.Time
	latest atomic.Int64 // since start, when bytes were last known to move
}

// carry copies in stretches of a fraction of the idle time: what the kernel
// splices is not seen by us until a stretch is over. So silence is sure only
// when one more stretch has passed.
func (p *pair) carry(to, from net.Conn, count *atomic.Int64) error {
	stretch := p.idle / looks
	for {
		now := time.Now()
		_ = from.SetReadDeadline(now.Add(stretch))
		_ = to.SetWriteDeadline(now.Add(p.idle + stretch))
		n, err := io.Copy(to, from)
		count.Add(n)
		if n > 0 {
			p.latest.Store(int64(time.Since(p.start)))
		}
		switch {
		case err == nil:
			return closeWrite(to)
		case !errors.Is(err, os.ErrDeadlineExceeded):
		case time.Since(now) >= p.idle+stretch:
			err = errSilent // the other side does not read any more
		case !p.silent():
			continue
		default:
			err = errSilent
		}
		_ = to.Close()
		_ = from.Close()
		return err
	}
}

// silent reports whether nothing came either way for too long.
func (p *pair) silent() bool {
	return time.Since(p.start)-time.Duration(p.latest.Load()) >= p.idle+p.idle/looks
}

// closeWrite tells the peer that nothing more comes. One that has gone already
// need not be told.
func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return c.Close()
	}
	_ = half.CloseWrite()
	return nil
}
