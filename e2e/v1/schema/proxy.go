package schema

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"time"
)

// Proxy stands between clients and a server that may die and come back, and
// looks at all that passes.
type Proxy struct {
	*Transport
	listener net.Listener
	http     *http.Server
}

// Upstream says where the server listens now.
type Upstream func(ctx context.Context) (addr string, err error)

// NewProxy starts a proxy. It ends with Close.
func NewProxy(spec *Spec, report *Report, to Upstream) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, Transport: &Transport{Spec: spec, Report: report, Base: &upstream{to: to, base: &http.Transport{
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, MaxIdleConnsPerHost: 16, DisableCompression: true,
	}}}}
	// A client must see the server's death as a broken connection, not as an
	// answer of ours.
	abort := func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	p.http = &http.Server{Handler: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "server" },
		Transport:     p,
		FlushInterval: -1,
		ErrorHandler:  abort,
		ErrorLog:      log.New(io.Discard, "", 0), // servers die, and it says so
	}, ReadHeaderTimeout: time.Minute, MaxHeaderBytes: 4 << 20}
	go func() { _ = p.http.Serve(l) }() // ends with Close
	return p, nil
}

// upstream asks the server that listens now.
type upstream struct {
	to   Upstream
	base http.RoundTripper
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	addr, err := u.to(r.Context())
	if err != nil {
		return nil, err
	}
	if addr == "" {
		return nil, errors.New("nobody listens")
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = addr, ""
	return u.base.RoundTrip(r)
}

// URL is where clients find it.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Close ends it, and every stream through it.
func (p *Proxy) Close() { _ = p.http.Close() }
