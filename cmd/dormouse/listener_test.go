package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse/auth"
)

// piped is a listener whose connections are in this process, so that the time on them
// is virtual.
type piped struct {
	conns chan net.Conn
	over  context.Context //nolint:containedctx // as long as it listens
	close context.CancelFunc
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over.Done():
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error { p.close(); return nil }

func (p *piped) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *piped) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

func TestNobodyHoldsAConnectionWithoutSendingARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over, stop := context.WithCancel(t.Context())
		at := &piped{make(chan net.Conn), over, stop}
		s := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "ok")
		}), slog.New(slog.DiscardHandler))
		served := make(chan error, 1)
		go func() { served <- s.Serve(at) }()
		for name, c := range map[string]struct {
			sends string
			until time.Duration
		}{
			"who says nothing":           {"", 10 * time.Second},
			"who does not finish a head": {"GET / HTTP/1.1\r\nHost: x\r\n", 10 * time.Second},
			"who does not send a body":   {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", 2 * time.Minute},
			"who asks nothing more":      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 2 * time.Minute},
			"who sends a head of a MiB":  {"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<20), 0},
		} {
			began := time.Now()
			conn := at.dial()
			go func() { _, _ = io.WriteString(conn, c.sends) }()
			_, _ = io.Copy(io.Discard, conn)
			if held := time.Since(began).Round(time.Second); held > c.until+time.Second || held < c.until {
				t.Errorf("%s holds a connection for %v, and may for %v", name, held, c.until)
			}
			_ = conn.Close()
		}
		_ = s.Close()
		<-served
	})
}

// Idle connections are closed in favour of new ones; connections in use are not.
func TestTheLimitOnConnectionsIsThatOfTheServer(t *testing.T) {
	s := startServer(t, t.TempDir(), func(c *config) { c.MaxConns = leastConns })
	stream := s.follow()
	defer stream.Close()
	var held []net.Conn
	for range 3 * leastConns {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	_ = held[0].SetReadDeadline(time.Now().Add(5 * time.Second)) // in half of the time that a head may take
	if _, err := held[0].Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the first of %d connections, where %d may be, is still held: %v", len(held), leastConns, err)
	}
	_ = stream.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // it says nothing, being silent and whole
	if n, err := stream.Read(make([]byte, 1)); n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stream that is in use was closed for them: %v", err)
	}
	if status, body := s.get("/healthz", false); status != http.StatusOK {
		t.Errorf("who comes is told %d %s", status, body)
	}
	if _, body := s.get("/metrics", true); !strings.Contains(body, "connections_cut_total") {
		t.Errorf("nobody is told how many were closed:\n%s", body)
	}
	for _, c := range append(held, stream) { // a server that stops waits for new ones
		_ = c.Close()
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// follow follows a new session over a connection of its own, of which it has read what
// there is so far.
func (s *serving) follow() net.Conn {
	s.t.Helper()
	token, err := auth.ReadToken(filepath.Join(s.config.Data, tokenFile))
	if err != nil {
		s.t.Fatal(err)
	}
	host := strings.TrimPrefix(s.url, "http://")
	c, err := net.Dial("tcp", host)
	if err != nil {
		s.t.Fatal(err)
	}
	head := " HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + token + "\r\n"
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(c)
	ask := func(what string) *http.Response {
		if _, err := io.WriteString(c, what); err != nil {
			s.t.Fatal(err)
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode/100 != 2 {
			s.t.Fatalf("%+v, %v", res, err)
		}
		return res
	}
	var made struct{ Session string }
	res := ask("POST /api/sessions" + head + "Content-Type: application/json\r\nContent-Length: 14\r\n\r\n" + `{"warm":false}`)
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil || made.Session == "" {
		s.t.Fatalf("%+v, %v", made, err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	ask("GET /api/sessions/" + made.Session + "/events" + head + "Accept: text/event-stream\r\n\r\n") //nolint:bodyclose // it ends with the connection
	return c
}
