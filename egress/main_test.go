package egress_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// quiet is for servers whose complaints are expected.
var quiet = log.New(io.Discard, "", 0)

// names is a resolver that knows what it is told, and what it was asked.
type names struct {
	mu    sync.Mutex
	known map[string][]string
	asked []string // guarded by mu
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, host)
	var addrs []netip.Addr
	for _, a := range n.known[strings.TrimSuffix(host, ".")] {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	if addrs == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.9.9.9:53", IsNotFound: true}
	}
	return addrs, nil
}

// rig is a proxy that serves one session.
type rig struct {
	socket string
	stop   func() error
	audit  *audit
}

// serve starts a proxy whose session has a network unless o says otherwise.
func serve(t testing.TB, o egress.Options, allow ...string) *rig {
	t.Helper()
	return serveSession(t, o, egress.Session{ID: "sesn_test", Policy: egress.Policy{Network: egress.On}}, allow...)
}

// serveSession starts a proxy for a session.
func serveSession(t testing.TB, o egress.Options, who egress.Session, allow ...string) *rig {
	t.Helper()
	var err error
	if o.Allow, err = egress.ParseAllow(allow); err != nil {
		t.Fatal(err)
	}
	r := &rig{socket: filepath.Join(t.TempDir(), "s"), audit: &audit{grown: make(chan struct{})}}
	o.Logger = slog.New(slog.NewJSONHandler(r.audit, nil))
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- egress.New(o).Serve(ctx, l, who) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) dial(t testing.TB) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// raw sends bytes as they are and gives the first response.
func (r *rig) raw(t testing.TB, request string) (int, string) {
	t.Helper()
	c := r.dial(t)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return response(t, bufio.NewReader(c))
}

func response(t testing.TB, from *bufio.Reader) (int, string) {
	t.Helper()
	res, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// connect opens a tunnel.
func (r *rig) connect(t testing.TB, to string) (*net.UnixConn, *bufio.Reader) {
	t.Helper()
	c := r.dial(t)
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to); err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReader(c)
	res, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("CONNECT %s: %s", to, res.Status)
	}
	return c, from
}

// client is a program that knows its proxy.
func (r *rig) client(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy:3128"}),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.socket)
		},
		ExpectContinueTimeout: patience,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 2 * patience}
}

// upstream is a server on loopback.
func upstream(t testing.TB, h http.HandlerFunc) (*httptest.Server, string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s, s.Listener.Addr().String()
}

// echo is a TCP server that sends back what it gets, and an end for an end.
func echo(t testing.TB) string {
	t.Helper()
	return accept(t, func(c *net.TCPConn) {
		_, _ = io.Copy(c, c)
		_ = c.CloseWrite()
	})
}

// accept serves TCP connections on loopback.
func accept(t testing.TB, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(2 * patience))
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// audit is what the proxy logged.
type audit struct {
	mu    sync.Mutex
	text  strings.Builder // guarded by mu
	grown chan struct{}   // guarded by mu; closed at the next line
}

func (a *audit) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.grown)
	a.grown = make(chan struct{})
	return a.text.Write(b)
}

func (a *audit) peek() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}

type line struct {
	Msg, Session, Method, Host, Verdict, Error string
	Path, Credential                           string
	NotAttached                                string `json:"not_attached"`
	Port                                       int
	Sent, Received                             int64
}

// lines waits until there are n requests in the log.
func (a *audit) lines(t testing.TB, n int) []line {
	t.Helper()
	end := time.After(patience)
	for {
		a.mu.Lock()
		text, grown := a.text.String(), a.grown
		a.mu.Unlock()
		var found []line
		for s := range strings.Lines(text) {
			var l line
			if err := json.Unmarshal([]byte(s), &l); err != nil {
				t.Fatal(err)
			}
			found = append(found, l)
		}
		if len(found) >= n {
			return found
		}
		select {
		case <-grown:
		case <-end:
			t.Fatalf("%d lines of %d:\n%s", len(found), n, text)
		}
	}
}
