package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
)

// upstream sends requests to hosts that credentials are for. It verifies their
// certificates, follows no redirect, and sends nothing twice that has effects.
//
// net/http repeats a request if a kept connection breaks, or if an HTTP/2 server says
// that it did nothing, as long as the body can be had again; a missing body always can.
// What may be repeated by its method is left to that. What may not goes out so that it
// cannot be: with a body that is read once, or without a body by HTTP/1 and with no
// header by which net/http takes it for harmless.
type upstream struct {
	any   *http.Transport
	http1 *http.Transport
}

// newUpstream makes the upstream of a session.
func newUpstream(ctx context.Context, w *sessionProxy) *upstream {
	var both, http1 http.Protocols
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	http1.SetHTTP1(true)
	u := &upstream{any: w.secureTransport(ctx, &both), http1: w.secureTransport(ctx, &http1)}
	u.http1.TLSClientConfig.NextProtos = []string{"http/1.1"} // so that a server can say no
	return u
}

func (w *sessionProxy) secureTransport(ctx context.Context, protocols *http.Protocols) *http.Transport {
	return &http.Transport{
		DialContext: func(dialling context.Context, _, address string) (net.Conn, error) {
			return w.dialPlain(ctx, dialling, address)
		},
		TLSClientConfig:        &tls.Config{RootCAs: w.proxy.opts.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    w.proxy.opts.DialTimeout,
		Protocols:              protocols,
		DisableCompression:     true,
		ExpectContinueTimeout:  continuePause,
		IdleConnTimeout:        upstreamIdle,
		MaxIdleConnsPerHost:    upstreamPerKey,
		MaxIdleConns:           w.proxy.opts.MaxConns,
		MaxResponseHeaderBytes: maxHead,
	}
}

func (u *upstream) close() {
	u.any.CloseIdleConnections()
	u.http1.CloseIdleConnections()
}

// send sends a request, and one that has effects at most once.
func (u *upstream) send(r *http.Request) (*http.Response, error) {
	if safe(r.Method) {
		return u.any.RoundTrip(r)
	}
	r.GetBody = nil
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if key, ok := r.Header[name]; ok {
			delete(r.Header, name)
			r.Header[strings.ToLower(name)] = key // the same header, but not to net/http
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = single{r.Body}
		return u.any.RoundTrip(r)
	}
	res, err := u.http1.RoundTrip(r)
	if alert(err) == "tls: no application protocol" { // it speaks no HTTP/1, and was sent nothing
		r.Body, r.ContentLength = single{http.NoBody}, -1
		return u.any.RoundTrip(r)
	}
	return res, err
}

// alert is what the far end of a TLS connection ended it with. crypto/tls has no type for
// that.
func alert(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return op.Err.Error()
	}
	return ""
}

// single is a body that can be had once, whatever it is.
type single struct{ io.ReadCloser }
