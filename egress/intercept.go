package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxStreams bounds the requests of one HTTP/2 connection that run at once.
const maxStreams = 100

// inside is the server of the programs of one session, in the place of the hosts that
// credentials are for.
type inside struct {
	server  *http.Server
	conns   chan net.Conn // to be served
	closed  chan struct{}
	close   func()
	running sync.WaitGroup
}

// insideKey is where the context of a request has its connection.
type insideKey struct{}

// terminated is a connection whose TLS ends here.
type terminated struct {
	net.Conn
	from *bufio.Reader // of the connection
	to   target        // what the program asked for
	// named says that it named the same host as it began to speak TLS.
	named bool
	gone  chan struct{} // closed with it
	close func() error
}

func (t *terminated) Read(b []byte) (int, error) { return t.from.Read(b) }
func (t *terminated) Close() error               { return t.close() }

// CloseWrite lets net/http end a response before it gives up on the request.
func (t *terminated) CloseWrite() error { return closeWrite(t.Conn) }

// startInside starts to serve intercepted connections until stopInside.
func (w *sessionProxy) startInside(ctx context.Context) {
	if w.proxy.opts.Credentials == nil {
		return
	}
	in := &inside{conns: make(chan net.Conn), closed: make(chan struct{})}
	in.close = sync.OnceFunc(func() { close(in.closed) })
	in.server = &http.Server{
		Handler:                      http.HandlerFunc(w.serveInside),
		ReadHeaderTimeout:            w.proxy.opts.HeaderTimeout,
		IdleTimeout:                  w.proxy.opts.IdleTimeout,
		MaxHeaderBytes:               maxHead - headSlack,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     w.quiet,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				ctx = context.WithValue(ctx, insideKey{}, t.NetConn())
			}
			return ctx
		},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	w.inside = in
	in.running.Go(func() { _ = in.server.Serve(in) })
}

// stopInside ends all that is served inside.
func (w *sessionProxy) stopInside() {
	if w.inside != nil {
		_ = w.inside.server.Close()
		w.inside.close()
		w.inside.running.Wait()
	}
}

// Accept gives the server the next connection.
func (in *inside) Accept() (net.Conn, error) {
	select {
	case c := <-in.conns:
		return c, nil
	case <-in.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (in *inside) Close() error {
	in.close()
	return nil
}

// Addr implements net.Listener.
func (*inside) Addr() net.Addr { return &net.UnixAddr{Name: "inside", Net: "unix"} }

// intercept answers CONNECT to a host that a credential is for: it ends the program's TLS
// here and serves what comes.
func (w *sessionProxy) intercept(ctx context.Context, rw http.ResponseWriter, rec *record) {
	if w.proxy.opts.Authority == nil {
		fail(ctx, rw, rec, &unavailable{what: "there is no certificate authority to stand in for it"})
		return
	}
	cert, err := w.proxy.opts.Authority.leaf(rec.to)
	if err != nil {
		fail(ctx, rw, rec, &unavailable{what: "there is no certificate to stand in for it", err: err})
		return
	}
	raw, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		fail(ctx, rw, rec, err)
		return
	}
	c := &terminated{Conn: raw, from: buffered.Reader, to: rec.to, gone: make(chan struct{})}
	c.close = sync.OnceValue(func() error {
		defer close(c.gone)
		return raw.Close()
	})
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := w.terminate(ctx, c, cert); err != nil {
		rec.err, rec.verdict = err, verdictInvalid
		if ctx.Err() != nil {
			rec.verdict = verdictGone
		}
		return
	}
	<-c.gone
}

// terminate shakes hands with the program and gives the connection to the server.
func (w *sessionProxy) terminate(ctx context.Context, c *terminated, cert *tls.Certificate) error {
	_ = c.SetDeadline(time.Now().Add(w.proxy.opts.HeaderTimeout))
	if _, err := io.WriteString(c.Conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return err
	}
	secure := tls.Server(c, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true, // what is resumed was compared with another CONNECT
		Certificates:           []tls.Certificate{*cert},
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			// The answer to a wrong name can be read only once there is a connection.
			c.named = c.to.isNamed(info.ServerName)
			return nil, nil
		},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		var record tls.RecordHeaderError
		if errors.As(err, &record) && record.Conn != nil {
			plain := answer{http.StatusBadRequest, verdictInvalid, c.to.String() + " is spoken to by https only."}
			_, _ = fmt.Fprintf(c.Conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\r\ndormouse: %s\n", plain.text)
			return plain
		}
		return fmt.Errorf("the program broke off the TLS connection, as one does that pins a certificate or has roots of its own: %w", err)
	}
	_ = c.SetDeadline(time.Time{})
	select {
	case w.inside.conns <- secure:
		return nil
	case <-w.inside.closed:
		return net.ErrClosed
	}
}

// isNamed reports whether a ClientHello with this name is meant for t.
func (t target) isNamed(name string) bool {
	if name == "" {
		return t.addr.IsValid()
	}
	named, err := parseTarget(name, t.port)
	return err == nil && named.host == t.host
}

// serveInside serves one request of an intercepted connection.
func (w *sessionProxy) serveInside(rw http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(insideKey{}).(*terminated)
	if !ok || !w.enter() {
		panic(http.ErrAbortHandler)
	}
	defer w.running.Done()
	rec := newRecord(r.Method)
	rec.to = c.to
	rec.path = r.URL.EscapedPath()
	rec.path = rec.path[:min(len(rec.path), maxPath)]
	defer func() { w.audited(r.Context(), rec) }()
	granted, err := w.admit(r, c)
	if err != nil {
		failInside(r, rw, rec, err)
		return
	}
	w.exchange(rw, r, rec, c, granted)
}

// failInside answers an intercepted request that failed. A connection of HTTP/2 goes on.
func failInside(r *http.Request, rw http.ResponseWriter, rec *record, err error) {
	if r.ProtoMajor == 1 {
		fail(r.Context(), rw, rec, err)
		return
	}
	failKept(r.Context(), rw, rec, err)
}
