// Package egress is the way out of a sandbox: a forward proxy on a unix socket
// of its session.
//
// It promises that the session is known by the socket and by nothing a request
// says; that whatever is dialled was checked, as an address, at the moment it
// was dialled; that only public addresses and what the operator listed are
// reached, and of these only hosts that the session names if its network is
// limited; and that nothing it carries outlives the context it was served under.
//
// With Options.Credentials it also promises that a secret leaves only in requests that a
// grant of the session covers, to a host whose certificate was verified; that it does not
// come back; and that a request with a credential and effects is recorded before its first
// byte and sent once at most. docs/egress.md has the reasons.
package egress

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/lograte"
)

const (
	maxHead = 64 << 10
	// headSlack is what net/http reads beyond the limit it is given.
	headSlack = 4 << 10

	defaultMaxConns      = 256
	defaultHeaderTimeout = 30 * time.Second
	defaultIdleTimeout   = 5 * time.Minute
	defaultDialTimeout   = 10 * time.Second

	upstreamIdle   = 30 * time.Second
	continuePause  = time.Second
	upstreamPerKey = 8

	// auditBurst and refusedBurst are how many requests of a session are in the log in
	// ten seconds.
	auditBurst   = 100
	refusedBurst = 10
)

// Session is the session that traffic belongs to, and its policy.
type Session struct {
	ID     dormouse.SessionID
	Policy Policy
}

// Options says what a proxy lets through. Zero times and counts are the
// defaults.
type Options struct {
	// Policy is asked at every request. Without it a session's own holds.
	Policy func(Session) Policy
	// PackageHosts says where packages come from. It is asked only about sessions
	// whose network is limited, and may take a while at first.
	PackageHosts func() []dormouse.Host
	// Allow is what may be reached beyond the public internet.
	Allow Allow
	// Listeners are the addresses that the server itself listens at.
	Listeners []netip.AddrPort
	// Names are the names that it is known by, as name:port, whatever they resolve to.
	Names []string
	// Resolver is nil for the machine's own.
	Resolver Resolver
	// Credentials says which credentials sessions may use. Without it no connection is
	// intercepted and no ClientHello is read.
	Credentials Credentials
	// Authority signs the certificates by which the proxy stands in for the hosts that
	// credentials are for. Without it these hosts cannot be reached.
	Authority *Authority
	// Journal records requests with a credential that have effects. Without it these are
	// not sent.
	Journal Journal
	// RootCAs is whom the hosts that credentials are for are verified against, or nil for
	// those of the machine.
	RootCAs *x509.CertPool
	// Logger gets one line for each request: of a session that makes many, the first of
	// every ten seconds, and how many were left out. Refused ones have an allowance of
	// their own.
	Logger *slog.Logger

	// MaxConns bounds the connections of one session.
	MaxConns int
	// HeaderTimeout is for the head of a request, DialTimeout for name and
	// connection together, IdleTimeout for silence both ways.
	HeaderTimeout time.Duration
	DialTimeout   time.Duration
	IdleTimeout   time.Duration
}

// Proxy carries what sandboxes send out. It serves any number of sessions.
type Proxy struct {
	opts  Options
	log   *slog.Logger
	guard guard
}

// New makes a proxy.
func New(o Options) *Proxy {
	o.MaxConns = cmp.Or(o.MaxConns, defaultMaxConns)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, defaultHeaderTimeout)
	o.DialTimeout = cmp.Or(o.DialTimeout, defaultDialTimeout)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, defaultIdleTimeout)
	if o.Policy == nil {
		o.Policy = func(s Session) Policy { return s.Policy }
	}
	if o.PackageHosts == nil {
		o.PackageHosts = func() []dormouse.Host { return nil }
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	return &Proxy{
		opts:  o,
		log:   cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		guard: guard{allow: o.Allow, listeners: o.Listeners, names: ownNames(o.Names), own: own{read: net.InterfaceAddrs}},
	}
}

// Serve serves the connections of l, all of which belong to the session who, until ctx
// ends. Then it closes l and every connection, and returns nil once all
// requests have ended. A listener that breaks before that is an error.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, who Session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := newSessionProxy(ctx, p, who)
	w.startInside(ctx)
	s := &http.Server{
		Handler:                      http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.serve(ctx, rw, r) }),
		ReadHeaderTimeout:            p.opts.HeaderTimeout,
		IdleTimeout:                  p.opts.IdleTimeout,
		MaxHeaderBytes:               maxHead - headSlack,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     w.quiet,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	err := s.Serve(&limited{Listener: l, free: make(chan struct{}, p.opts.MaxConns)})
	ended := ctx.Err() != nil
	cancel()
	_ = s.Close()
	w.stopInside()
	w.close()
	if ended || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve egress of %s: %w", who.ID, err)
}

// sessionProxy is the proxy of one session: where it may connect to, and the requests that run.
type sessionProxy struct {
	proxy     *Proxy
	who       Session
	log       *slog.Logger
	audit     *lograte.Handler // of requests that left
	refused   *lograte.Handler // of those that did not
	quiet     *log.Logger      // what net/http has to say
	transport *http.Transport
	inside    *inside   // nil without credentials
	secure    *upstream // what is reached on behalf of credentials
	redactors redactors
	swaps     chan struct{} // holds one for each body that is in memory

	mu      sync.Mutex
	closed  bool           // guarded by mu; no request enters any more
	running sync.WaitGroup // requests; only added to under mu
}

func newSessionProxy(ctx context.Context, p *Proxy, who Session) *sessionProxy {
	w := &sessionProxy{proxy: p, who: who, log: p.log.With("session", who.ID)}
	w.audit = lograte.New(w.log.Handler(), lograte.Options{Burst: auditBurst})
	w.refused = lograte.New(w.log.Handler(), lograte.Options{Burst: refusedBurst})
	w.quiet = slog.NewLogLogger(lograte.New(w.log.Handler(), lograte.Options{Together: true}), slog.LevelDebug)
	w.transport = &http.Transport{
		DialContext: func(dialling context.Context, _, address string) (net.Conn, error) {
			return w.dialPlain(ctx, dialling, address)
		},
		DisableCompression:     true,
		ExpectContinueTimeout:  continuePause,
		IdleConnTimeout:        upstreamIdle,
		MaxIdleConnsPerHost:    upstreamPerKey,
		MaxIdleConns:           p.opts.MaxConns,
		MaxResponseHeaderBytes: maxHead,
	}
	w.secure = newUpstream(ctx, w)
	w.swaps = make(chan struct{}, maxSwaps)
	return w
}

// enter counts a request, unless it is too late for one.
func (w *sessionProxy) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.running.Add(1)
	}
	return !w.closed
}

func (w *sessionProxy) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
	w.audit.Flush()
	w.refused.Flush()
	w.transport.CloseIdleConnections()
	w.secure.close()
}
