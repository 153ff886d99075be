package egress_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
)

func TestOnlyHostsOfAGrantAreIntercepted(t *testing.T) {
	h, _ := watcher()
	w := newWorld(t, h)
	_, port, _ := net.SplitHostPort(w.host)
	for to, own := range map[string]bool{w.host: false, "other.example:" + port: true} {
		name, _, _ := net.SplitHostPort(to)
		c := w.secured(t, to, name)
		leaf := c.ConnectionState().PeerCertificates[0]
		_, err := leaf.Verify(x509.VerifyOptions{Roots: w.ca.pool(), DNSName: name})
		if (err == nil) != own {
			t.Errorf("%s has the upstream's own certificate: %v", to, err == nil)
		}
		_, err = leaf.Verify(x509.VerifyOptions{Roots: w.trusted(), DNSName: name})
		if (err == nil) == own {
			t.Errorf("%s has a certificate of ours: %v", to, err == nil)
		}
		_ = c.Close()
	}
	// A grant that ended is none.
	w.keeper.set(nil)
	c := w.secured(t, w.host, "up.example")
	if _, err := c.ConnectionState().PeerCertificates[0].Verify(x509.VerifyOptions{Roots: w.ca.pool(), DNSName: "up.example"}); err != nil {
		t.Error(err)
	}
}

func TestARequestIsForTheHostOfItsConnection(t *testing.T) { // E31, E32, E35, E41, E49
	h, got := watcher()
	w := newWorld(t, h)
	_, port, _ := net.SplitHostPort(w.host)
	with := func(name, request string) int {
		c := w.secured(t, w.host, name)
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, request)
		status, _ := response(t, bufio.NewReader(c))
		return status
	}
	auth := "\r\nAuthorization: " + placeholder + "\r\n\r\n"
	for _, c := range []struct {
		name, request string
		want          int
	}{
		{"up.example", "GET / HTTP/1.1\r\nHost: " + w.host + auth, 200},
		{"UP.example", "GET / HTTP/1.1\r\nHost: UP.example.:" + port + auth, 200},
		{"other.example", "GET / HTTP/1.1\r\nHost: " + w.host + auth, 421},
		{"", "GET / HTTP/1.1\r\nHost: " + w.host + auth, 421},
		{"up.example", "GET / HTTP/1.1\r\nHost: other.example:" + port + auth, 421},
		{"up.example", "GET / HTTP/1.1\r\nHost: up.example" + auth, 421},                   // port 443
		{"up.example", "GET / HTTP/1.1\r\nHost: " + w.host + "@other.example" + auth, 400}, // E08
		{"up.example", "GET https://other.example:" + port + "/ HTTP/1.1\r\nHost: " + w.host + auth, 421},
		{"up.example", "GET http://" + w.host + "/ HTTP/1.1\r\nHost: " + w.host + auth, 421},
		{"up.example", "GET https://" + w.host + "/ HTTP/1.1\r\nHost: other.example" + auth, 200}, // net/http takes the URL's
	} {
		if got := with(c.name, c.request); got != c.want {
			t.Errorf("%s: %q: %d, want %d", c.name, c.request, got, c.want)
		}
	}
	for len(got) > 0 {
		if s := <-got; s.Host != w.host {
			t.Errorf("%+v", s)
		}
	}
}

func TestTheHostOfHTTP2IsComparedToo(t *testing.T) { // E41
	h, got := watcher()
	w := newWorld(t, h)
	for authority, extra := range map[string]string{"other.example": "", w.host: "other.example"} {
		c := w.secured(t, w.host, "up.example", "h2")
		_, _ = io.WriteString(c, http2.ClientPreface)
		framer := http2.NewFramer(c, c)
		_ = framer.WriteSettings()
		var block strings.Builder
		e := hpack.NewEncoder(&block)
		fields := [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", authority}, {":path", "/"}, {"authorization", placeholder}}
		if extra != "" {
			fields = append(fields, [2]string{"host", extra})
		}
		for _, f := range fields {
			_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
		framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if m, ok := f.(*http2.MetaHeadersFrame); ok {
				if status := m.PseudoValue("status"); status != "421" {
					t.Errorf("%s, %s: %s", authority, extra, status)
				}
				break
			}
		}
		_ = c.Close()
	}
	if len(got) > 0 {
		t.Errorf("%+v was sent", <-got)
	}
}

func TestRequestsThatCouldBeReadInTwoWaysAreRefused(t *testing.T) { // E46, E47, E50, E53, E65, E68, E70
	h, got := watcher()
	w := newWorld(t, h)
	g := w.grant(t)
	g.Paths = []string{"/owner/repo"}
	w.keeper.set(nil, g)
	head := " HTTP/1.1\r\nHost: " + w.host + "\r\nAuthorization: " + placeholder + "\r\n"
	for request, want := range map[string]int{
		"GET /owner/repo/../other" + head + "\r\n":                                                400,
		"GET /owner/repo/%2e%2e/other" + head + "\r\n":                                            400,
		"GET //owner/repo" + head + "\r\n":                                                        400,
		"GET /owner/repo;x" + head + "\r\n":                                                       400,
		"GET /owner%2frepo" + head + "\r\n":                                                       400,
		"GET /owner\\repo" + head + "\r\n":                                                        400,
		"GET /owner/repo%00" + head + "\r\n":                                                      400,
		"GET https://" + w.host + "/owner/repo/../other" + head + "\r\n":                          400,
		"OPTIONS *" + head + "\r\n":                                                               400,
		"TRACE /owner/repo" + head + "\r\n":                                                       405,
		"TRACK /owner/repo" + head + "\r\n":                                                       405,
		"CONNECT " + w.host + head + "\r\n":                                                       405,
		"POST /owner/repo" + head + "X-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n\r\n": 400,
		"POST /owner/repo" + head + "X-Method-Override: DELETE\r\nContent-Length: 0\r\n\r\n":      400,
		"GET /owner/repo" + head + "Host: x\r\n\r\n":                                              400,
		"POST /owner/repo" + head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!":        400,
		"POST /owner/repo" + head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n":                400,
		"POST /owner/repo" + head + "Transfer-Encoding: x\r\n\r\n":                                501,
		"GET /owner/repo" + head + "A: b\x00c\r\n\r\n":                                            400,
		"GET /owner/repo\r\n\r\n":                                                                 400,
		"GET /owner/repo" + head + "X: " + strings.Repeat("a", 64<<10) + "\r\n\r\n":               431,
	} {
		if status, body := w.rawInside(t, request); status != want {
			t.Errorf("%.80q: %d %s", request, status, body)
		}
	}
	if len(got) > 0 {
		t.Errorf("%+v was sent", <-got)
	}
	// The length does not count, and what follows is not a request of its own upstream.
	if status, _ := w.rawInside(t, "POST /owner/repo"+head+"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n"); status != 200 {
		t.Error(status)
	}
	if s := <-got; s.Body != "hello" || s.Header.Get("Content-Length") != "" {
		t.Errorf("%+v", s)
	}
}

func TestOnlyWebSocketsAreUpgraded(t *testing.T) { // E43
	h, got := watcher()
	w := newWorld(t, h)
	w.rawInside(t, "GET / HTTP/1.1\r\nHost: "+w.host+"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
	if s := <-got; s.Header.Get("Upgrade") != "" || s.Header.Get("Connection") != "" || s.Header.Get("Http2-Settings") != "" {
		t.Errorf("%v", s.Header)
	}
}

func TestAnUpstreamThatCannotBeTrustedIsSentNothing(t *testing.T) { // E74
	past := time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		template x509.Certificate
		own      bool // signed by an authority nobody knows
		want     string
	}{
		"another name": {x509.Certificate{DNSNames: []string{"other.example"}}, false, "for other names"},
		"common name":  {x509.Certificate{}, false, "for other names"},
		"expired":      {x509.Certificate{DNSNames: []string{"up.example"}, NotBefore: past.Add(-time.Hour), NotAfter: past}, false, "expired"},
		"unknown":      {x509.Certificate{DNSNames: []string{"up.example"}}, true, "not known here"},
	} {
		both(t, func(t *testing.T, h2 bool) {
			h, got := watcher()
			w := &world{ca: newCA(t), keeper: &keeper{}, journal: &journal{}}
			signer := w.ca
			if c.own {
				signer = newCA(t)
			}
			template := c.template
			s := httptest.NewUnstartedServer(h)
			s.TLS = &tls.Config{Certificates: []tls.Certificate{signer.sign(t, &template)}, MinVersion: tls.VersionTLS12}
			s.Config.ErrorLog = quiet
			s.StartTLS()
			t.Cleanup(s.Close)
			w.serve(t, s.Listener.Addr().String())
			res, body := send(t, w.program(t, h2), "POST", "https://"+w.host+"/", strings.NewReader("x"), "Authorization", placeholder)
			if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, c.want) || len(got) > 0 {
				t.Errorf("%s: %s %s", name, res.Status, body)
			}
			if _, outcomes := w.journal.take(t); len(outcomes) != 1 || outcomes[0].State != egress.NotSent {
				t.Errorf("%s: %v", name, outcomes)
			}
		})
	}
}

func TestARedirectIsThePrograms(t *testing.T) { // E62
	both(t, func(t *testing.T, h2 bool) {
		var asked atomic.Int64
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			_, port, _ := net.SplitHostPort(r.Host)
			http.Redirect(rw, r, "https://other.example:"+port+"/?t="+r.Header.Get("Authorization"), http.StatusMultipleChoices+int(asked.Add(1)))
		})
		c := w.program(t, h2)
		for range 8 {
			res, body := send(t, c, "POST", "https://"+w.host+"/", strings.NewReader("x"), "Authorization", placeholder)
			if strings.Contains(body+res.Header.Get("Location"), "c4n4ry") {
				t.Errorf("%s %q %s", res.Status, res.Header, body)
			}
		}
		if n := asked.Load(); n != 8 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestAProgramThatRefusesTheCertificateIsInTheAudit(t *testing.T) {
	h, _ := watcher()
	w := newWorld(t, h)
	c, _ := w.connect(t, w.host)
	if err := tls.Client(c, &tls.Config{ServerName: "up.example", RootCAs: w.ca.pool(), MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context()); err == nil {
		t.Fatal("a certificate of nobody is trusted")
	}
	if l := w.audit.lines(t, 1)[0]; l.Verdict != "invalid" || !strings.Contains(l.Error, "pins a certificate or has roots of its own") {
		t.Errorf("%+v", l)
	}
	plain, from := w.connect(t, w.host) // E38
	_, _ = io.WriteString(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if status, body := response(t, from); status != http.StatusBadRequest || !strings.Contains(body, "https only") {
		t.Errorf("%d %s", status, body)
	}
}

func TestASlowHandshakeIsCutOff(t *testing.T) { // E37, E80
	h, _ := watcher()
	w := newWorld(t, h, func(o *egress.Options) { o.HeaderTimeout = 50 * time.Millisecond })
	c, from := w.connect(t, w.host)
	_, _ = c.Write([]byte{22, 3})
	if _, err := from.ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("%v", err)
	}
}

func TestWithoutAnAuthorityAHostOfAGrantIsNotReached(t *testing.T) {
	h, got := watcher()
	w := newWorld(t, h, func(o *egress.Options) { o.Authority = nil })
	if status, _ := w.raw(t, "CONNECT "+w.host+" HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusServiceUnavailable || len(got) > 0 {
		t.Error(status)
	}
}

func TestALimitedNetworkComparesTheNameOfATunnel(t *testing.T) { // E31, E37
	for _, c := range []struct {
		to, name string
		want     bool
	}{
		{"up.example", "up.example", true},
		{"up.example", "other.example", false},
		{"up.example", "", false},
		{"127.0.0.1", "", true},
	} {
		h, _ := watcher()
		w := &world{ca: newCA(t), keeper: &keeper{}}
		s := httptest.NewUnstartedServer(h)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{w.ca.sign(t, &x509.Certificate{DNSNames: []string{"up.example"}})}, MinVersion: tls.VersionTLS12}
		s.Config.ErrorLog = quiet
		s.StartTLS()
		t.Cleanup(s.Close)
		_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
		to := net.JoinHostPort(c.to, port)
		limited := egress.Policy{Network: egress.Limited, Hosts: []dormouse.Host{host(t, to)}}
		r := serve(t, egress.Options{
			Resolver: &names{known: map[string][]string{"up.example": {"127.0.0.1"}}}, Credentials: w.keeper,
			Policy: func(egress.Session) egress.Policy { return limited },
		}, to)
		conn, _ := r.connect(t, to)
		err := tls.Client(conn, &tls.Config{ServerName: c.name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context())
		if (err == nil) != c.want {
			t.Errorf("%s for %s: %v", c.name, c.to, err)
		}
		_ = conn.Close()
		if l := r.audit.lines(t, 1)[0]; (l.Verdict == "refused") == c.want {
			t.Errorf("%+v", l)
		}
	}
}

func TestPolicyIsAskedAboutEveryRequestOfAnInterceptedConnection(t *testing.T) { // E40
	both(t, func(t *testing.T, h2 bool) {
		h, got := watcher()
		on := make(chan bool, 10)
		w := newWorld(t, h, func(o *egress.Options) {
			o.Policy = func(egress.Session) egress.Policy {
				if <-on {
					return egress.Policy{Network: egress.On}
				}
				return egress.Policy{}
			}
		})
		c := w.program(t, h2)
		for _, b := range []bool{true, true, false} {
			on <- b
		}
		if res, body := send(t, c, "GET", "https://"+w.host+"/", nil, "Authorization", placeholder); res.StatusCode != 200 {
			t.Errorf("%s %s", res.Status, body)
		}
		if res, body := send(t, c, "GET", "https://"+w.host+"/", nil, "Authorization", placeholder); res.StatusCode != 403 {
			t.Errorf("%s %s", res.Status, body)
		}
		if len(got) != 1 {
			t.Errorf("%d requests", len(got))
		}
	})
}

func TestInterceptedConnectionsEndWithTheProxy(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		hangs := make(chan struct{})
		w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
			close(hangs)
			<-r.Context().Done()
		})
		ended := make(chan error, 1)
		c := w.program(t, h2)
		go func() {
			_, _, err := try(t.Context(), c, "POST", "https://"+w.host+"/", strings.NewReader("x"), "Authorization", placeholder)
			ended <- err
		}()
		<-hangs
		idle := w.secured(t, w.host, "up.example")
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		<-ended
		if _, err := idle.Read(make([]byte, 1)); err == nil {
			t.Error("an idle connection is still there")
		}
		if _, outcomes := w.journal.take(t); len(outcomes) != 1 || outcomes[0].State != egress.Unknown {
			t.Errorf("%v", outcomes)
		}
	})
}

func TestManyConnectionsHoldNoMoreThanTheirSession(t *testing.T) { // E80
	h, _ := watcher()
	w := newWorld(t, h, func(o *egress.Options) { o.MaxConns = 3 })
	var open []net.Conn
	for range 3 {
		open = append(open, w.secured(t, w.host, "up.example"))
	}
	if status, body := response(t, bufio.NewReader(w.dial(t))); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, body)
	}
	_ = open[0].Close()
	w.audit.lines(t, 1)
	_, _ = fmt.Fprint(io.Discard, w.secured(t, w.host, "up.example").Close())
}
