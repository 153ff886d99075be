package egress_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
	"github.com/dormouse-run/dormouse/vault"
)

const (
	placeholder = "dormouse_7c1f0placeholder"
	secret      = "ghp_c4n4ry/S3cr3t+0123456789"
)

// ca signs the certificates of upstreams.
type ca struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newCA(t testing.TB) *ca {
	t.Helper()
	c := &ca{}
	cert := c.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "test"}})
	c.cert = cert.Leaf
	c.key, _ = cert.PrivateKey.(*ecdsa.PrivateKey)
	return c
}

func (c *ca) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.cert)
	return p
}

// sign completes a template; the first is signed by itself.
func (c *ca) sign(t testing.TB, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := template, key
	if c.cert != nil {
		parent, signer = c.cert, c.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// keeper has what the session of a rig was granted.
type keeper struct {
	mu     sync.Mutex
	grants []egress.Grant // guarded by mu
	err    error          // guarded by mu
}

func (k *keeper) Grants(_ context.Context, session dormouse.SessionID) ([]egress.Grant, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if session != "sesn_test" {
		return nil, errors.New("another session")
	}
	return slices.Clone(k.grants), k.err
}

func (k *keeper) set(err error, grants ...egress.Grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.grants, k.err = grants, err
}

// journal remembers what was begun and what became of it.
type journal struct {
	mu       sync.Mutex
	err      error             // guarded by mu
	begun    []egress.Mutation // guarded by mu
	outcomes []egress.Outcome  // guarded by mu
	twice    bool              // guarded by mu; an op was finished twice
	begin    func()            // called as an op begins
}

func (j *journal) Begin(_ context.Context, m egress.Mutation) (func(egress.Outcome), error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return nil, j.err
	}
	if j.begin != nil {
		j.begin()
	}
	j.begun = append(j.begun, m)
	done := false
	return func(o egress.Outcome) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.twice = j.twice || done
		done = true
		j.outcomes = append(j.outcomes, o)
	}, nil
}

func (j *journal) take(t testing.TB) ([]egress.Mutation, []egress.Outcome) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.twice || len(j.begun) != len(j.outcomes) {
		t.Errorf("%d ops, %d ends, one ended twice: %v", len(j.begun), len(j.outcomes), j.twice)
	}
	begun, outcomes := j.begun, j.outcomes
	j.begun, j.outcomes = nil, nil
	return begun, outcomes
}

// world is a proxy with credentials, and an upstream that they are for.
type world struct {
	*rig
	ca        *ca
	authority *egress.Authority
	keeper    *keeper
	journal   *journal
	host      string // the upstream as name:port
	server    *httptest.Server
}

// newWorld serves h as up.example, with a grant whose placeholder is swapped in headers.
func newWorld(t testing.TB, h http.HandlerFunc, change ...func(*egress.Options)) *world {
	t.Helper()
	w := &world{ca: newCA(t), keeper: &keeper{}, journal: &journal{}}
	w.server = httptest.NewUnstartedServer(h)
	w.server.EnableHTTP2 = true
	w.server.TLS = &tls.Config{Certificates: []tls.Certificate{w.ca.sign(t, &x509.Certificate{DNSNames: []string{"up.example", "other.example"}})}, MinVersion: tls.VersionTLS12}
	w.server.Config.ErrorLog = quiet
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	return w.serve(t, w.server.Listener.Addr().String(), change...)
}

// serve starts the proxy, with addr as what up.example and other.example lead to.
func (w *world) serve(t testing.TB, addr string, change ...func(*egress.Options)) *world {
	t.Helper()
	var err error
	if w.authority, err = egress.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	w.host = "up.example:" + port
	w.keeper.set(nil, w.grant(t))
	o := egress.Options{
		Resolver:    &names{known: map[string][]string{"up.example": {"127.0.0.1"}, "other.example": {"127.0.0.1"}}},
		Credentials: w.keeper, Authority: w.authority, Journal: w.journal, RootCAs: w.ca.pool(),
	}
	for _, c := range change {
		c(&o)
	}
	w.rig = serve(t, o, w.host, "other.example:"+port)
	return w
}

// grant is a grant for the upstream.
func (w *world) grant(t testing.TB) egress.Grant {
	t.Helper()
	return egress.Grant{
		Vault: "vlt_1", Credential: "vcrd_1", Hosts: []dormouse.Host{host(t, w.host)}, Placeholder: placeholder, Header: true,
		Secret: func(context.Context) (vault.Secret, error) { return vault.NewSecret(secret), nil },
	}
}

func host(t testing.TB, s string) dormouse.Host {
	t.Helper()
	h, err := dormouse.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (w *world) trusted() *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(w.authority.Certificate())
	return p
}

// program is a client in the sandbox that trusts the authority and no other.
func (w *world) program(t testing.TB, h2 bool) *http.Client {
	t.Helper()
	tr := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy:3128"}),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", w.socket)
		},
		TLSClientConfig:       &tls.Config{RootCAs: w.trusted(), MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:     h2,
		DisableCompression:    true,
		ExpectContinueTimeout: patience,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// secured opens a tunnel and speaks TLS in it, with this name.
func (w *world) secured(t testing.TB, to, name string, protocols ...string) *tls.Conn {
	t.Helper()
	c, _ := w.connect(t, to)
	s := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protocols, MinVersion: tls.VersionTLS12})
	if err := s.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// rawInside sends bytes through an intercepted connection and gives the first response.
func (w *world) rawInside(t testing.TB, request string) (int, string) {
	t.Helper()
	c := w.secured(t, w.host, "up.example")
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return response(t, bufio.NewReader(c))
}

// send sends a request of a program and gives its answer.
func send(t testing.TB, c *http.Client, method, to string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	res, text, err := try(t.Context(), c, method, to, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, to, err)
	}
	return res, text
}

func try(ctx context.Context, c *http.Client, method, to string, body io.Reader, header ...string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return nil, "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return res, string(text), fmt.Errorf("read the answer: %w", err)
	}
	return res, string(text), nil
}

// request waits for the line of the first request inside a connection. That of the connection
// may come before it.
func (w *world) request(t testing.TB) line {
	t.Helper()
	for n := 1; ; n++ {
		if l := w.audit.lines(t, n)[n-1]; l.Method != http.MethodConnect {
			return l
		}
	}
}

// both runs a test with a program that speaks HTTP/1 and one that speaks HTTP/2.
func both(t *testing.T, run func(t *testing.T, h2 bool)) {
	for _, h2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "http1", true: "http2"}[h2], func(t *testing.T) { run(t, h2) })
	}
}
