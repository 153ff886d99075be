package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/egress"
)

func TestSessionWithoutNetworkReachesNothing(t *testing.T) {
	_, addr := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("reached") })
	off := func(egress.Session) egress.Policy { return egress.Policy{} }
	r := serve(t, egress.Options{Policy: off}, addr)
	for _, request := range []string{
		"CONNECT " + addr + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://" + addr + "/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + addr + "\r\n\r\n",
	} {
		if status, body := r.raw(t, request); status != http.StatusForbidden || !strings.Contains(body, "network of this session is off") {
			t.Errorf("%q: %d %s", request, status, body)
		}
	}
}

func TestPolicyIsAskedAboutTheSocketsSessionAtEveryRequest(t *testing.T) {
	var on atomic.Bool
	policy := func(s egress.Session) egress.Policy {
		if s.ID == "sesn_test" && on.Load() {
			return egress.Policy{Network: egress.On}
		}
		return egress.Policy{}
	}
	_, addr := upstream(t, func(http.ResponseWriter, *http.Request) {})
	r := serve(t, egress.Options{Policy: policy}, addr)
	request := "GET http://" + addr + "/ HTTP/1.1\r\nHost: x\r\nX-Session: sesn_other\r\nProxy-Authorization: Basic c2Vzbl9vdGhlcg==\r\n\r\n" // E85
	for _, want := range []int{http.StatusForbidden, http.StatusOK, http.StatusForbidden} {
		on.Store(want == http.StatusOK)
		if status, body := r.raw(t, request); status != want {
			t.Errorf("%d %s, want %d", status, body, want)
		}
	}
}

func TestRefusalsSayWhyAndWhatAllowsIt(t *testing.T) {
	dns := &names{known: map[string][]string{
		"private.example":          {"10.0.0.7"},
		"mixed.example":            {"93.184.216.34", "10.0.0.7"},
		"mapped.example":           {"::ffff:10.0.0.7"},
		"v6.example":               {"64:ff9b::7f00:1"},
		"metadata.google.internal": {"169.254.169.254"},
		"mail.example":             {"93.184.216.34"},
		"server.example":           {"127.0.0.1"},
		"alias.example":            {"fd00::7"}, // a CNAME's end is all a resolver gives
	}}
	r := serve(t, egress.Options{Resolver: dns, Listeners: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7717")}}, "server.example:7717")
	for _, c := range []struct{ to, want string }{
		{"private.example:443", "private.example:443 is refused: it is a private address. The operator of the server can allow it with --egress-allow private.example:443."},
		{"mixed.example:443", "a private address"},         // E25
		{"alias.example:443", "a private address"},         // E26
		{"mapped.example:443", "a private address"},        // E16
		{"v6.example:443", "a NAT64 address"},              //
		{"metadata.google.internal:80", "a link-local"},    // E23
		{"METADATA.google.internal.:80", "a link-local"},   // E04, E23
		{"mail.example:25", "port 25"},                     //
		{"server.example:7717", "it is this server"},       // E28
		{"127.0.0.1:80", "a loopback address"},             // E13
		{"[::ffff:127.0.0.1]:80", "it is an IPv4-mapped"},  // E16
		{"[::127.0.0.1]:80", "an IPv4-compatible address"}, // E17
		{"0.0.0.0:80", "the unspecified address"},          // E14
		{"169.254.169.254:80", "--egress-allow 169.254.1"}, // E23
	} {
		for _, request := range []string{"CONNECT " + c.to, "GET http://" + c.to + "/"} {
			status, body := r.raw(t, request+" HTTP/1.1\r\nHost: example.com\r\n\r\n")
			if status != http.StatusForbidden || !strings.Contains(body, c.want) {
				t.Errorf("%s: %d %s", request, status, body)
			}
			if strings.Contains(body, "10.0.0.7") {
				t.Errorf("%s tells where a name leads: %s", request, body)
			}
		}
	}
	dns.mu.Lock()
	defer dns.mu.Unlock()
	for _, asked := range dns.asked {
		if listed := asked == "server.example"; strings.HasSuffix(asked, ".") == listed {
			t.Errorf("%q was looked up", asked)
		}
	}
}

func TestRequestsThatAreNotForAProxyAreRefused(t *testing.T) {
	_, addr := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("reached") })
	r := serve(t, egress.Options{Resolver: &names{}}, addr)
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: " + addr + "\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: " + addr + "\r\n\r\n",
		"GET https://" + addr + "/ HTTP/1.1\r\nHost: x\r\n\r\n", // E11
		"GET ws://" + addr + "/ HTTP/1.1\r\nHost: x\r\n\r\n",    // E11
		"GET ftp://" + addr + "/ HTTP/1.1\r\nHost: x\r\n\r\n",   // E11
		"GET gopher://" + addr + "/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http:/" + addr + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://a@" + addr + "/ HTTP/1.1\r\nHost: x\r\n\r\n", // E08
		"CONNECT a@" + addr + " HTTP/1.1\r\nHost: x\r\n\r\n",     // E08
		"CONNECT http://" + addr + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT 127.0.0.1 HTTP/1.1\r\nHost: " + addr + "\r\n\r\n",
		"CONNECT / HTTP/1.1\r\nHost: " + addr + "\r\n\r\n",
		"CONNECT " + addr + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"CONNECT " + addr + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET http://2130706433:" + addr[len("127.0.0.1:"):] + "/ HTTP/1.1\r\nHost: x\r\n\r\n",                                  // E13
		"GET http://" + addr + "/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",                                                      // E50
		"GET http://" + addr + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",                 // E46
		"GET http://" + addr + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",                                      // E46
		"POST http://" + addr + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",                        // E47
		"POST http://" + addr + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n", // E47
		"POST http://" + addr + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",                   // E47
		"POST http://" + addr + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",                     // E47
		"GET http://" + addr + "/\r\n\r\n",                                                                                     // E53
		"GET http://" + addr + "/ HTTP/1.1\r\n Host: x\r\n\r\n",                                                                // a folded first line
		"GET http://" + addr + "/ HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",                                                    // E53
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",                                                                                     // E41
		"\x16\x03\x01 \r\n\r\n",                                                                                                // TLS to the proxy itself
	} {
		status, body := r.raw(t, request)
		if status < 400 || status > 505 || status == http.StatusForbidden || status == http.StatusBadGateway {
			t.Errorf("%q: %d %s", request, status, body)
		}
	}
}

func TestPlainRequestIsWrittenAnew(t *testing.T) {
	type seen struct {
		Method, Host, URI, Body string
		Length                  int64
		Chunked                 []string
		Header                  http.Header
	}
	got := make(chan seen, 10)
	_, addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.Host, r.RequestURI, string(body), r.ContentLength, r.TransferEncoding, r.Header}
		w.Header()["Date"] = nil
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-Kept", "1")
		w.WriteHeader(http.StatusTeapot)
	})
	_, port, _ := net.SplitHostPort(addr)
	name := "up.example:" + port
	r := serve(t, egress.Options{Resolver: &names{known: map[string][]string{"up.example": {"127.0.0.1"}}}}, name)
	none := http.Header{}
	for _, c := range []struct {
		request string
		want    seen
	}{
		// E49
		{"GET http://UP.example.:" + port + "/a%2fb/../c;d?q=1;2&%zz HTTP/1.1\r\nHost: other.example\r\n\r\n", seen{"GET", name, "/a%2fb/../c;d?q=1;2&%zz", "", 0, nil, none}},
		{
			"GET http://" + name + " HTTP/1.1\r\nHost: x\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 1\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: secret\r\nVia: 1\r\nTE: gzip\r\nX-Kept: a\r\n  b\r\n\r\n",
			seen{"GET", name, "/", "", 0, nil, http.Header{"X-Kept": {"a b"}}},
		},
		// E43
		{"GET http://" + name + "/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", seen{"GET", name, "/", "", 0, nil, none}},
		{"POST http://" + name + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", seen{"POST", name, "/", "hello", 5, nil, http.Header{"Content-Length": {"5"}}}},
		// E46: the length does not count, and is not sent
		{"POST http://" + name + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n0\r\n\r\nGET http://" + name + "/smuggled HTTP/1.1\r\nHost: x\r\n\r\n", seen{"POST", name, "/", "hello", -1, []string{"chunked"}, none}},
	} {
		conn := r.dial(t)
		if _, err := io.WriteString(conn, c.request); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if diff := cmp.Diff(c.want, <-got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.request, diff)
		}
		kept := http.Header{"X-Kept": {"1"}, "Content-Length": {"0"}}
		if res.Header.Get("Connection") == "close" {
			kept.Set("Connection", "close")
		}
		if diff := cmp.Diff(kept, res.Header); diff != "" || res.StatusCode != http.StatusTeapot {
			t.Errorf("%s (-want +got):\n%s", res.Status, diff)
		}
		_ = conn.Close()
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if len(got) > 0 {
		t.Errorf("upstream saw one more request: %+v", <-got)
	}
}

func TestKeptConnectionIsCheckedAtEveryRequest(t *testing.T) { // E40
	_, addr := upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	r := serve(t, egress.Options{}, addr)
	c := r.dial(t)
	_, _ = fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\nGET http://10.0.0.1/ HTTP/1.1\r\nHost: %s\r\n\r\n", addr, addr, addr)
	from := bufio.NewReader(c)
	if status, body := response(t, from); status != http.StatusOK || body != "hello" {
		t.Errorf("%d %s", status, body)
	}
	if status, body := response(t, from); status != http.StatusForbidden {
		t.Errorf("%d %s", status, body)
	}
}

func TestBodiesStreamBothWays(t *testing.T) {
	_, addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		from := bufio.NewReader(r.Body)
		for {
			s, err := from.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, strings.ToUpper(s))
			_ = http.NewResponseController(w).Flush()
		}
	})
	r := serve(t, egress.Options{}, addr)
	up, feed := io.Pipe()
	go func() { _, _ = io.WriteString(feed, "first\n") }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr, up)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	down := bufio.NewReader(res.Body)
	for _, want := range []string{"FIRST\n", "SECOND\n"} {
		if got, err := down.ReadString('\n'); got != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
		if want == "FIRST\n" {
			_, _ = io.WriteString(feed, "second\n")
		}
	}
	_ = feed.Close()
	if rest, err := io.ReadAll(down); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if l := r.audit.lines(t, 1)[0]; l.Sent != 13 || l.Received != 13 || l.Verdict != "allowed" {
		t.Errorf("%+v", l)
	}
}

func TestExpectationIsPassedOnAndAnswered(t *testing.T) { // E52
	_, addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	r := serve(t, egress.Options{}, addr)
	for path, want := range map[string]int{"/yes": http.StatusOK, "/no": http.StatusExpectationFailed} {
		asked := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			asked = asked || code == http.StatusContinue
			return nil
		}, Got100Continue: func() { asked = true }})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Expect", "100-continue")
		res, err := r.client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || want == http.StatusOK && (string(body) != "body" || !asked) {
			t.Errorf("%s: %s %q, asked %v", path, res.Status, body, asked)
		}
	}
}

func TestUnreachableAndSlowHaveDifferentAnswers(t *testing.T) {
	const closed = "127.0.0.1:1" // no port that anybody is given
	breaks := accept(t, func(*net.TCPConn) {})
	r := serve(t, egress.Options{Resolver: &names{known: map[string][]string{}}}, closed, breaks)
	for request, want := range map[string]string{
		"CONNECT " + closed:                     "connection refused",
		"GET http://" + closed + "/":            "connection refused",
		"CONNECT nowhere.example:443":           "there is no such name",
		"GET http://nowhere.example/?token=abc": "there is no such name",
		"GET http://" + breaks + "/":            "cannot be reached",
	} {
		status, body := r.raw(t, request+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if status != http.StatusBadGateway || !strings.Contains(body, want) || strings.Contains(body, "10.9.9.9") {
			t.Errorf("%s: %d %s", request, status, body)
		}
	}
}

// stuck is a resolver that never answers.
type stuck struct{}

func (stuck) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDialThatTakesTooLongIsATimeout(t *testing.T) {
	r := serve(t, egress.Options{Resolver: stuck{}, DialTimeout: 10 * time.Millisecond})
	for _, request := range []string{"CONNECT slow.example:443", "GET http://slow.example/"} {
		if status, body := r.raw(t, request+" HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusGatewayTimeout {
			t.Errorf("%s: %d %s", request, status, body)
		}
	}
}

func TestSilentUpstreamIsATimeout(t *testing.T) {
	silent := accept(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	r := serve(t, egress.Options{IdleTimeout: 50 * time.Millisecond}, silent)
	if status, body := r.raw(t, "GET http://"+silent+"/ HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusGatewayTimeout {
		t.Errorf("%d %s", status, body)
	}
	if l := r.audit.lines(t, 1)[0]; l.Verdict != "timeout" {
		t.Errorf("%+v", l)
	}
}

func TestHeadHasALimitAndATime(t *testing.T) {
	_, addr := upstream(t, func(http.ResponseWriter, *http.Request) {})
	r := serve(t, egress.Options{}, addr)
	head := "GET http://" + addr + "/ HTTP/1.1\r\nHost: x\r\nA: "
	if status, _ := r.raw(t, head+strings.Repeat("a", 60<<10)+"\r\n\r\n"); status != http.StatusOK {
		t.Errorf("a head under the limit: %d", status)
	}
	if status, _ := r.raw(t, head+strings.Repeat("a", 64<<10)+"\r\n\r\n"); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head over the limit: %d", status)
	}
	c := serve(t, egress.Options{HeaderTimeout: 50 * time.Millisecond}).dial(t) // E80: the head never ends
	_, _ = io.WriteString(c, head)
	if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a head that does not end was not cut off")
	}
}

func TestConnectionsOfASessionAreLimited(t *testing.T) { // E80
	addr := echo(t)
	r := serve(t, egress.Options{MaxConns: 2}, addr)
	first, _ := r.connect(t, addr)
	r.connect(t, addr)
	if status, body := response(t, bufio.NewReader(r.dial(t))); status != http.StatusServiceUnavailable || !strings.Contains(body, "2 connections") {
		t.Errorf("%d %s", status, body)
	}
	_ = first.Close()
	r.audit.lines(t, 1)
	r.connect(t, addr)
}

func TestServeClosesEverythingWhenItsContextEnds(t *testing.T) {
	addr := echo(t)
	hangs := make(chan struct{})
	s, plain := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		close(hangs)
		<-r.Context().Done()
	})
	r := serve(t, egress.Options{}, addr, plain)
	c, from := r.connect(t, addr)
	request := r.dial(t)
	_, _ = fmt.Fprintf(request, "GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", plain)
	<-hangs
	idle := r.dial(t)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if _, err := from.ReadByte(); err == nil {
		t.Error("the tunnel is still there")
	}
	for _, c := range []net.Conn{c, request, idle} {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection is still there")
		}
	}
	s.Close() // waits for the request to end
	if _, err := net.Dial("unix", r.socket); err == nil {
		t.Error("the listener is still there")
	}
}

func TestBrokenListenerIsAnError(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := egress.New(egress.Options{}).Serve(t.Context(), l, egress.Session{ID: "sesn_test"}); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestAuditHasALineForEveryRequestAndNoSecret(t *testing.T) {
	addr := echo(t)
	_, plain := upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "four") })
	r := serve(t, egress.Options{}, addr, plain)
	c, from := r.connect(t, addr)
	_, _ = io.WriteString(c, "hello")
	_ = c.CloseWrite()
	_, _ = io.ReadAll(from)
	r.audit.lines(t, 1)
	r.raw(t, "POST http://"+plain+"/hidden/path?hidden=query HTTP/1.1\r\nHost: x\r\nHidden: header\r\nContent-Length: 2\r\n\r\nhi")
	r.audit.lines(t, 2)
	r.raw(t, "GET http://10.0.0.1/hidden?hidden HTTP/1.1\r\nHost: x\r\n\r\n")
	r.audit.lines(t, 3)
	r.raw(t, "GET http://hidden@x/hidden HTTP/1.1\r\nHost: x\r\n\r\n")
	port := func(addr string) int { return int(netip.MustParseAddrPort(addr).Port()) }
	want := []line{
		{Method: "CONNECT", Host: "127.0.0.1", Port: port(addr), Verdict: "allowed", Sent: 5, Received: 5},
		{Method: "POST", Host: "127.0.0.1", Port: port(plain), Verdict: "allowed", Sent: 2, Received: 4},
		{Method: "GET", Host: "10.0.0.1", Port: 80, Verdict: "refused", Error: "it is a private address. The operator of the server can allow it with --egress-allow 10.0.0.1:80."},
		{Method: "GET", Verdict: "invalid", Error: "the URL holds a user name"},
	}
	for i := range want {
		want[i].Msg, want[i].Session = "egress request", "sesn_test"
	}
	if diff := cmp.Diff(want, r.audit.lines(t, 4)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(strings.ToLower(r.audit.text.String()), "hidden") {
		t.Errorf("the audit tells too much:\n%s", r.audit.text.String())
	}
}

func TestASessionCannotFillTheLogWithWhatIsRefused(t *testing.T) {
	_, plain := upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "four") })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := audit{grown: make(chan struct{})}
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	allow, err := egress.ParseAllow([]string{plain})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- egress.New(egress.Options{Allow: allow, Logger: slog.New(slog.NewTextHandler(&out, nil))}).
			Serve(ctx, l, egress.Session{ID: "sesn_test", Policy: egress.Policy{Network: egress.On}})
	}()
	const requests = 300
	long := strings.Repeat("x", 50000)
	for i := range requests {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		to := "GET http://10.0.0.1/" + long
		switch i % 3 {
		case 1:
			to = "GET http://" + long + "/"
		case 2:
			to = "GET http://x\x1by/"
		}
		_, _ = io.WriteString(c, to+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		_, _ = io.ReadAll(c)
		_ = c.Close()
	}
	// One that leaves has a line all the same.
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "GET http://"+plain+"/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	_, _ = io.ReadAll(c)
	_ = c.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	text := out.text.String()
	written, left := 0, 0
	for line := range strings.Lines(text) {
		if len(line) > 2000 {
			t.Errorf("a line has %d bytes", len(line))
		}
		if _, count, ok := strings.Cut(line, " count="); ok {
			n := 0
			_, _ = fmt.Sscan(count, &n)
			left += n
		} else {
			written++
		}
	}
	// A machine that is slow enough begins another interval.
	if written > requests/4 || left == 0 || !strings.Contains(text, "verdict=allowed") || strings.Contains(text, "\x1b") {
		t.Errorf("%d lines, %d left out:\n%s", written, left, text)
	}
}
