package egress_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/egress"
)

// FuzzProxyHTTP1 sends bytes to a proxy, with UP for an upstream it may reach.
// The upstream takes one request on each connection and no byte more.
func FuzzProxyHTTP1(f *testing.F) {
	for _, seed := range []string{
		"GET http://UP/ HTTP/1.1\r\nHost: UP\r\n\r\n",
		"GET http://UP/a?b HTTP/1.0\r\n\r\n",
		"POST http://UP/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"POST http://UP/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://UP/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST http://UP/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"GET http://UP/ HTTP/1.1\r\nHost: x\r\nX: a\r\n Y: b\r\n\r\nGET http://UP/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://UP/ HTTP/1.1\nHost: x\nContent-Length: 3\n\nabc",
		"PUT http://UP/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
		"GET http://UP/%0d%0aX:%20y HTTP/1.1\r\nHost: x\r\nConnection: Host, Content-Length\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if bytes.Contains(raw, []byte("CONNECT")) {
			return // what goes through a tunnel is the program's own affair
		}
		seen := make(chan struct{}, 1024)
		addr := accept(t, func(c *net.TCPConn) { takeOne(t, c, seen) })
		const short = 200 * time.Millisecond
		r := serve(t, egress.Options{Resolver: &names{}, HeaderTimeout: short, IdleTimeout: short}, addr)
		c := r.dial(t)
		_, _ = c.Write(bytes.ReplaceAll(raw, []byte("UP"), []byte(addr)))
		_, _ = io.WriteString(c, "\r\n\r\nGET /over HTTP/1.1\r\nHost: x\r\n\r\n") // refused, which ends the connection
		_, _ = io.Copy(io.Discard, c)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		let := 0
		for _, l := range r.audit.lines(t, 0) {
			if l.Verdict != "refused" && l.Verdict != "invalid" {
				let++
			}
		}
		if len(seen) > let {
			t.Errorf("upstream saw %d requests, the proxy let %d through", len(seen), let)
		}
	})
}

// takeOne answers one request and complains about anything odd in it.
func takeOne(t *testing.T, c net.Conn, seen chan<- struct{}) {
	addr := c.LocalAddr().String()
	var wire bytes.Buffer
	from := bufio.NewReader(io.TeeReader(c, &wire))
	req, err := http.ReadRequest(from)
	if err != nil {
		return // given up before its head was sent
	}
	head, _, _ := strings.Cut(wire.String(), "\r\n\r\n")
	seen <- struct{}{}
	if req.Host != addr || req.URL.Host != "" {
		t.Errorf("a request for %q, %q came to %q", req.Host, req.URL, addr)
	}
	lower := strings.ToLower(head)
	if strings.Contains(lower, "\ntransfer-encoding:") && strings.Contains(lower, "\ncontent-length:") {
		t.Errorf("a body with two lengths:\n%s", head)
	}
	if strings.Contains(strings.ReplaceAll(head, "\r\n", ""), "\n") || strings.Contains(head, "\r\n ") || strings.Contains(head, "\r\n\t") {
		t.Errorf("a head that could be read in two ways: %q", head)
	}
	if req.Header.Get("Expect") != "" {
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return // given up before its body was sent
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
	if rest, _ := io.ReadAll(from); len(rest) > 0 {
		t.Errorf("something follows the request: %q", rest)
	}
}
