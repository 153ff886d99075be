// Package connlimit bounds the connections of an HTTP server, so that a client which holds
// many of them does not keep others out.
//
// A connection is waiting from the moment it is accepted until a request on it is
// authenticated, which the handler reports with InUse, and again between requests. At the
// limit a new connection is accepted by closing the one that has waited the longest. A
// connection in use is never closed, however long its request takes. Only if all of them are
// in use is a new one refused.
package connlimit

import (
	"container/list"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limit is that of one server.
type Limit struct {
	max int

	mu      sync.Mutex
	open    int        // guarded by mu
	waiting *list.List // of *conn, the one that has waited the longest first; guarded by mu
	cut     uint64     // guarded by mu
	refused uint64     // guarded by mu
}

// New returns a limit of that many connections, at least one.
func New(most int) *Limit { return &Limit{max: max(most, 1), waiting: list.New()} }

// Apply puts a server under the limit. It is to serve what Listen returns.
func (l *Limit) Apply(s *http.Server) {
	handler, connContext, connState := s.Handler, s.ConnContext, s.ConnState
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			if !l.begin(c) {
				panic(http.ErrAbortHandler) // it was closed for another just now
			}
			defer l.wait(c)
		}
		handler.ServeHTTP(w, r)
	})
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if connContext != nil {
			ctx = connContext(ctx, c)
		}
		return context.WithValue(ctx, connKey{}, c)
	}

	s.ConnState = func(c net.Conn, state http.ConnState) {
		if mine, ok := c.(*conn); ok && state == http.StateHijacked {
			l.use(mine)
			l.mu.Lock()
			mine.taken = true
			l.mu.Unlock()
		}
		if connState != nil {
			connState(c, state)
		}
	}
}

type connKey struct{}

// Listen returns a listener whose connections count.
func (l *Limit) Listen(from net.Listener) net.Listener { return &listener{from, l} }

// Counts says how many connections are open, how many were closed for others, and how
// many turned away.
func (l *Limit) Counts() (open int, cut, refused uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.cut, l.refused
}

// enter counts a connection, or refuses it. If another one has to be closed for it, enter
// returns that one.
func (l *Limit) enter(c *conn) (instead *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.max {
		first := l.waiting.Front()
		if first == nil {
			l.refused++
			return nil, false
		}
		instead, _ = first.Value.(*conn)
		l.leave(instead)
		l.cut++
	}
	l.open++
	c.place = l.waiting.PushBack(c)
	return instead, true
}

// leave forgets a connection. The caller holds mu.
func (l *Limit) leave(c *conn) {
	if c.left {
		return
	}
	c.left = true
	l.open--
	if c.place != nil {
		l.waiting.Remove(c.place)
		c.place = nil
	}
}

// InUse keeps the connection of a request from being closed for others until the request is
// answered. The handler calls it once the request is authenticated: an unauthenticated client
// could make a request last for as long as it likes.
func InUse(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.limit.use(c)
	}
}

// begin notes that the head of a request was read, from when on it waits anew.
func (l *Limit) begin(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place != nil {
		l.waiting.MoveToBack(c.place)
	}
	return !c.left
}

// use notes that a request is being answered.
func (l *Limit) use(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place != nil {
		l.waiting.Remove(c.place)
		c.place = nil
	}
}

// wait notes that it was answered.
func (l *Limit) wait(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.left && c.place == nil && !c.taken {
		c.place = l.waiting.PushBack(c)
	}
}

type listener struct {
	net.Listener
	limit *Limit
}

// Accept returns the next connection that is within the limit. It refuses the others.
func (l *listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, limit: l.limit}
		instead, ok := l.limit.enter(c)
		if instead != nil {
			_ = instead.Conn.Close()
		}
		if ok {
			return c, nil
		}
		turnAway(inner)
	}
}

// turnAway never blocks: the text fits into the buffer of any new socket.
func turnAway(c net.Conn) {
	const text = "too many connections\n"
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
		http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable), len(text), text)
	_ = c.Close()
}

// conn is a connection that counts until it is closed.
type conn struct {
	net.Conn
	limit *Limit
	place *list.Element // among those that wait, nil if it does not; guarded by limit.mu
	left  bool          // it counts no more; guarded by limit.mu
	taken bool          // a handler has hijacked it; guarded by limit.mu
}

// Close closes the connection, which does not count any more.
func (c *conn) Close() error {
	c.limit.mu.Lock()
	c.limit.leave(c)
	c.limit.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http end a response before it gives up on the rest of the
// request.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// ReadFrom lets the system copy files and sockets by itself.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	if from, ok := c.Conn.(io.ReaderFrom); ok {
		return from.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{c.Conn}, r)
}
