//go:build linux

package inside_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/runner/inside"
)

// egress opens a forwarder to a socket that nothing listens on yet.
func egress(t *testing.T) (*inside.EgressForwarder, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "egress")
	o, err := inside.ListenEgress(t.Context(), "127.0.0.1:0", socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o, socket
}

// listenAt serves connections of a unix socket, which is put in place whole.
func listenAt(t *testing.T, socket string, serve func(*net.UnixConn)) (stop func()) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket + ".new", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := os.Rename(socket+".new", socket); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c)
			})
		}
	})
	stop = sync.OnceFunc(func() {
		_ = l.Close()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func dialEgress(t *testing.T, o *inside.EgressForwarder) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", o.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// say sends a word to an upper-casing socket and gives what comes back.
func say(t *testing.T, o *inside.EgressForwarder, word string) string {
	t.Helper()
	c := dialEgress(t, o)
	_, _ = io.WriteString(c, word)
	_ = c.CloseWrite()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// shout answers once it has heard everything.
func shout(c *net.UnixConn) {
	b, _ := io.ReadAll(c)
	_, _ = io.WriteString(c, strings.ToUpper(string(b)))
}

func TestEgressForwarderJoinsProgramsToTheSocketThatIsThere(t *testing.T) {
	o, socket := egress(t)
	stop := listenAt(t, socket, shout)
	if got := say(t, o, "hello"); got != "HELLO" {
		t.Errorf("%q", got)
	}
	stop() // as when a sandbox is restored beside another server
	listenAt(t, socket, shout)
	if got := say(t, o, "again"); got != "AGAIN" {
		t.Errorf("%q", got)
	}
}

func TestEgressForwarderPassesOnTheFarEndsHalfClose(t *testing.T) {
	o, socket := egress(t)
	got := make(chan string, 1)
	listenAt(t, socket, func(c *net.UnixConn) {
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	c := dialEgress(t, o)
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	_, _ = io.WriteString(c, "still here")
	_ = c.CloseWrite()
	if b := <-got; b != "still here" {
		t.Errorf("%q", b)
	}
}

func TestEgressForwarderSaysWhenThereIsNoNetwork(t *testing.T) {
	o, socket := egress(t)
	ask := func() (int, string) {
		c := dialEgress(t, o)
		_, _ = io.WriteString(c, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	if status, body := ask(); status != http.StatusServiceUnavailable || !strings.Contains(body, "network of this sandbox is off") {
		t.Errorf("%d %s", status, body)
	}
	listenAt(t, socket, shout)() // the file stays, its server is gone
	if status, body := ask(); status != http.StatusServiceUnavailable || !strings.Contains(body, "just now") {
		t.Errorf("%d %s", status, body)
	}
}

func TestEgressForwarderCarriesOnly512AtOnce(t *testing.T) {
	const most = 512
	o, socket := egress(t)
	arrived := make(chan struct{}, 2*most)
	listenAt(t, socket, func(c *net.UnixConn) {
		arrived <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	first := dialEgress(t, o)
	<-arrived
	for range most - 1 {
		dialEgress(t, o)
		<-arrived
	}
	waiting := dialEgress(t, o)
	_ = waiting.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = waiting.Read(make([]byte, 1))
	if len(arrived) > 0 {
		t.Error("one more was carried")
	}
	_ = first.Close()
	<-arrived
}

func TestEgressForwarderEndsWithItsContext(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "egress")
	ctx, cancel := context.WithCancel(t.Context())
	o, err := inside.ListenEgress(ctx, "127.0.0.1:0", socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	listenAt(t, socket, func(c *net.UnixConn) {
		_, _ = io.WriteString(c, "hello")
		_, _ = io.Copy(io.Discard, c)
		close(ended)
	})
	c := dialEgress(t, o)
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", o.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the listener is still there")
	}
}
