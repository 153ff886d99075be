package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

// lastWord is how long an answer may still be written after what it is about was given up.
const lastWord = 500 * time.Millisecond

// exchange is one intercepted request and its answer.
type exchange struct {
	http.ResponseWriter // the program's

	w        *sessionProxy
	rec      *record
	conn     *terminated
	http1    bool // the connection has one request at a time
	granted  []Grant
	silence  *time.Timer
	cancel   context.CancelCauseFunc
	watching sync.WaitGroup

	unload   func()    // gives back the place of a body that is in memory
	redactor *redactor // set before the request leaves; nil if it has no credential

	mu       sync.Mutex
	hijacked bool // guarded by mu; the connection has become something else than HTTP
}

// exchange sends an intercepted request on, with the credentials that are for it, and the
// answer back, without them.
func (w *sessionProxy) exchange(rw http.ResponseWriter, r *http.Request, rec *record, c *terminated, granted []Grant) {
	ctx, cancel := context.WithCancelCause(r.Context())
	e := &exchange{ResponseWriter: rw, w: w, rec: rec, conn: c, http1: r.ProtoMajor == 1, granted: granted, cancel: cancel, unload: func() {}}
	defer func() { e.unload() }()
	e.silence = time.AfterFunc(w.proxy.opts.IdleTimeout, func() { e.abort(ctx, errSilent) })
	defer func() {
		e.silence.Stop()
		cause := context.Cause(ctx)
		cancel(nil)
		e.watching.Wait()
		switch {
		case errors.Is(cause, errRevoked):
			rec.verdict = verdictRevoked
		case errors.Is(cause, errSilent):
			rec.verdict = verdictTimeout
		}
	}()
	r = r.WithContext(ctx)
	if !isWebSocket(r) {
		r.Header.Del("Upgrade")
	}
	r.Header.Del("Http2-Settings")
	r.Header.Del("Host")
	if r.ContentLength != 0 {
		r.Body = &metered{r.Body, &rec.sent, e.alive}
	}
	rw.Header()["Content-Type"], rw.Header()["Date"] = nil, nil // the response's own or none
	if len(r.TransferEncoding) > 0 && e.http1 {
		// The answer may come while the body does. What is left of the body at the end would
		// end the connection without a word, so that the program is told.
		_ = http.NewResponseController(rw).EnableFullDuplex()
		rw.Header().Set("Connection", "close")
	}
	(&httputil.ReverseProxy{
		Transport:      e,
		Rewrite:        func(p *httputil.ProxyRequest) { rewriteSecure(p, rec.to) },
		FlushInterval:  -1,
		BufferPool:     &buffers,
		ModifyResponse: e.clean,
		ErrorHandler:   func(rw http.ResponseWriter, _ *http.Request, err error) { failInside(r, rw, rec, err) },
		ErrorLog:       w.quiet,
	}).ServeHTTP(e, r)
}

func isWebSocket(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func rewriteSecure(p *httputil.ProxyRequest, to target) {
	rewrite(p, to)
	p.Out.URL.Scheme, p.Out.Host = "https", to.String()
	if to.port == securePort {
		p.Out.Host = to.authority()
	}
}

func (e *exchange) alive() { e.silence.Reset(e.w.proxy.opts.IdleTimeout) }

// abort gives the exchange up. What hangs in a read or write is let go, too.
func (e *exchange) abort(ctx context.Context, cause error) {
	if ctx.Err() != nil {
		return // over: the connection may be at its next request
	}
	e.cancel(cause)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hijacked {
		_ = e.conn.Close()
		return
	}
	control := http.NewResponseController(e.ResponseWriter)
	_ = control.SetReadDeadline(time.Now())
	_ = control.SetWriteDeadline(time.Now().Add(lastWord))
	if e.http1 {
		// net/http closes it with a farewell, which takes long if nobody reads.
		time.AfterFunc(lastWord, func() { _ = e.conn.Close() })
	}
}

// watch ends the exchange when a grant that it uses is revoked.
func (e *exchange) watch(ctx context.Context, g *Grant) {
	revoked := g.Revoked
	if revoked == nil {
		return
	}
	e.watching.Go(func() {
		select {
		case <-revoked:
			e.abort(ctx, errRevoked)
		case <-ctx.Done():
		}
	})
}

// RoundTrip puts the credentials on and sends the request. It is what httputil sends by,
// so that nothing comes between, such as a header that the program called hop-by-hop.
func (e *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	uses, err := e.attach(r)
	if err != nil {
		return nil, err
	}
	if len(uses) == 0 {
		return e.w.secure.send(r)
	}
	unhide(r)
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	if safe(r.Method) {
		return e.w.secure.send(r)
	}
	first := uses[0].grant
	m := Mutation{
		Session: e.w.who.ID, Vault: first.Vault, Credential: first.Credential,
		Method: r.Method, Host: e.rec.to.String(), Path: r.URL.EscapedPath(),
	}
	return e.w.journalled(r, m, e.w.secure.send)
}

// unhide asks for an answer that can be searched: plain, and not in parts that have less
// than a whole secret each.
func unhide(r *http.Request) {
	r.Header.Set("Accept-Encoding", "identity")
	for _, name := range []string{"Range", "If-Range", "Sec-Websocket-Extensions", "Grpc-Accept-Encoding"} {
		r.Header.Del(name)
	}
}

// clean masks credentials in an answer.
func (e *exchange) clean(res *http.Response) error {
	e.alive()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return e.switched(res)
	}
	res.Body = &metered{res.Body, &e.rec.received, e.alive}
	if e.redactor == nil {
		return nil
	}
	if err := decode(res, e.rec.to); err != nil {
		return err
	}
	e.redactor.header(res.Header)
	res.Body = &cleaned{e.redactor.reader(res.Body, answersInTurn(res)), res.Body, func() { e.redactor.header(res.Trailer) }}
	return nil
}

// answersInTurn reports whether a message may end anywhere and wait for an answer, so that
// holding back its last bytes could be for ever. Texts end with a line or a quote.
func answersInTurn(res *http.Response) bool {
	kind := res.Header.Get("Content-Type")
	return strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect")
}

// cleaned is a body without secrets, and with trailers that have none.
type cleaned struct {
	io.Reader
	from  io.Closer
	ended func()
}

func (c *cleaned) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if err != nil {
		c.ended()
	}
	return n, err
}

func (c *cleaned) Close() error {
	err := c.from.Close()
	c.ended()
	return err
}

// switched makes the far end of a WebSocket one that is counted and without secrets.
func (e *exchange) switched(res *http.Response) error {
	far, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		return fmt.Errorf("the connection of a %d cannot be written to", res.StatusCode)
	}
	res.Status = "" // it is written as it is
	e.redactor.header(res.Header)
	s := &stream{far: far, from: &metered{far, &e.rec.received, e.alive}, sent: func(n int) {
		e.rec.sent.Add(int64(n))
		e.alive()
	}}
	if e.redactor != nil {
		s.from = e.redactor.reader(s.from, true)
	}
	res.Body = s
	return nil
}

// stream is the far end of a connection that is no longer HTTP.
type stream struct {
	far  io.ReadWriteCloser
	from io.Reader
	sent func(int)
}

func (s *stream) Read(b []byte) (int, error) { return s.from.Read(b) }

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.far.Write(b)
	s.sent(n)
	return n, err
}

func (s *stream) Close() error { return s.far.Close() }

// WriteHeader masks credentials also in what is said ahead of the answer.
func (e *exchange) WriteHeader(status int) {
	e.redactor.header(e.Header())
	e.ResponseWriter.WriteHeader(status)
}

// Unwrap is how net/http finds what the program's connection can do.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// Hijack implements http.Hijacker.
func (e *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, rw, err := http.NewResponseController(e.ResponseWriter).Hijack()
	e.hijacked = err == nil
	return c, rw, err
}
