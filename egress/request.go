package egress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"
)

const (
	plainPort  = 80
	securePort = 443
	bufferSize = 32 << 10
)

// serve serves one request of the session.
func (w *sessionProxy) serve(ctx context.Context, rw http.ResponseWriter, r *http.Request) {
	if !w.enter() {
		panic(http.ErrAbortHandler)
	}
	defer w.running.Done()
	rec := newRecord(r.Method)
	defer func() { w.audited(ctx, rec) }()
	var err error
	rec.to, err = destination(r)
	policy := w.proxy.opts.Policy(w.who)
	if err == nil || policy.Network == Off {
		err = policy.check(rec.to, w.proxy.opts.PackageHosts)
	}
	switch {
	case err != nil:
		fail(ctx, rw, rec, err)
	case r.Method == http.MethodConnect:
		w.tunnel(ctx, rw, rec, policy.Network == Limited)
	default:
		w.noteUnattached(ctx, rec, r.Header)
		w.forward(rw, r, rec)
	}
}

// audited writes what became of a request.
func (w *sessionProxy) audited(ctx context.Context, rec *record) {
	log := w.audit
	if rec.verdict != verdictAllowed {
		log = w.refused
	}
	rec.write(ctx, slog.New(log))
}

// destination reads where a request wants to go from its first line. The Host
// header has no say.
func destination(r *http.Request) (target, error) {
	if r.Method == http.MethodConnect {
		if r.ContentLength != 0 {
			return target{}, invalid("CONNECT has no body")
		}
		return parseTarget(r.RequestURI, 0)
	}
	switch {
	case !r.URL.IsAbs() || r.URL.Host == "":
		return target{}, invalid("it takes CONNECT host:port and whole http URLs")
	case r.URL.Scheme == "https":
		return target{}, invalid("https goes through CONNECT")
	case r.URL.Scheme != "http":
		return target{}, invalid("it carries http and what goes through CONNECT")
	case r.URL.User != nil:
		return target{}, invalid("the URL holds a user name")
	}
	return parseTarget(r.URL.Host, plainPort)
}

// forward sends a plain request on and its response back. The request is encoded anew
// from how it was parsed here, so that no server behind us can parse it differently.
func (w *sessionProxy) forward(rw http.ResponseWriter, r *http.Request, rec *record) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	silence := w.proxy.opts.IdleTimeout
	control := http.NewResponseController(rw)
	timer := time.AfterFunc(silence, func() {
		if ctx.Err() != nil {
			return // over: the connection may be at its next request
		}
		cancel(errSilent)
		_ = control.SetReadDeadline(time.Now())
		_ = control.SetWriteDeadline(time.Now().Add(time.Second)) // for the answer
	})
	defer func() {
		timer.Stop()
		if errors.Is(context.Cause(ctx), errSilent) {
			rec.verdict = verdictTimeout
		}
	}()
	alive := func() { timer.Reset(silence) }

	r = r.WithContext(ctx)
	r.Header.Del("Upgrade") // what is not HTTP goes through CONNECT
	if r.ContentLength != 0 {
		r.Body = &metered{r.Body, &rec.sent, alive}
	}
	rw.Header()["Content-Type"], rw.Header()["Date"] = nil, nil // the response's own or none
	if len(r.TransferEncoding) > 0 {
		rw.Header().Set("Connection", "close") // it may have had a length too
	}
	(&httputil.ReverseProxy{
		Transport:     w.transport,
		Rewrite:       func(p *httputil.ProxyRequest) { rewrite(p, rec.to) },
		FlushInterval: -1,
		BufferPool:    &buffers,
		ModifyResponse: func(res *http.Response) error {
			alive()
			res.Body = &metered{res.Body, &rec.received, alive}
			return nil
		},
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, err error) { fail(ctx, rw, rec, err) },
		ErrorLog:     w.quiet,
	}).ServeHTTP(rw, r)
}

// rewrite makes the request that leaves. Hop-by-hop headers are gone by now.
func rewrite(p *httputil.ProxyRequest, to target) {
	p.Out.URL.Host = to.String()
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Host = to.String()
	if to.port == plainPort {
		p.Out.Host = to.authority()
	}
	p.Out.Header.Del("Via")
}

// fail answers a request that failed, and ends its connection: of a body nobody reads, or
// a deadline.
func fail(ctx context.Context, rw http.ResponseWriter, rec *record, err error) {
	rw.Header().Set("Connection", "close")
	failKept(ctx, rw, rec, err)
}

// failKept answers a request that failed.
func failKept(ctx context.Context, rw http.ResponseWriter, rec *record, err error) {
	to := "The request"
	if rec.to.host != "" {
		to = rec.to.String()
	}
	a := explain(ctx, to, err)
	rec.verdict, rec.err = a.verdict, err
	a.write(rw)
}

// dialPlain makes a connection for the pool of plain requests. Dials there
// outlive the request that asked; none outlives the session's serving.
func (w *sessionProxy) dialPlain(serving, dialling context.Context, address string) (net.Conn, error) {
	to, err := parseTarget(address, 0)
	if err != nil {
		return nil, err
	}
	dialling, cancel := context.WithCancel(dialling)
	defer cancel()
	defer context.AfterFunc(serving, cancel)()
	c, err := w.proxy.dial(dialling, to)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(serving, func() { _ = c.Close() })
	return &counted{Conn: c, release: func() { stop() }}, nil
}

// buffers are what responses are copied through.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

// Get gives a buffer that was used before, or a new one.
func (b *bufferPool) Get() []byte {
	if used, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return used[:]
	}
	return make([]byte, bufferSize)
}

// Put keeps a buffer for the next.
func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[bufferSize]byte)(buf)) }
