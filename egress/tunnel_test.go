package egress_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse/egress"
)

func TestTunnelCarriesBytesAndHalfAClose(t *testing.T) {
	const size = 8 << 20
	sum := sha256.New()
	done := make(chan []byte, 1)
	addr := accept(t, func(c *net.TCPConn) { // speaks only after the other side has ended
		n, err := io.Copy(sum, c)
		if n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		done <- sum.Sum(nil)
		_, _ = c.Write(bytes.Repeat([]byte("b"), size))
	})
	r := serve(t, egress.Options{}, addr)
	c, from := r.connect(t, addr)
	sent := bytes.Repeat([]byte("abcdefg\n"), size/8)
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(sent); !bytes.Equal(<-done, want[:]) {
		t.Error("other bytes arrived")
	}
	back, err := io.ReadAll(from)
	if len(back) != size || err != nil {
		t.Errorf("%d bytes back, %v", len(back), err)
	}
	if l := r.audit.lines(t, 1)[0]; l.Sent != size || l.Received != size || l.Verdict != "allowed" {
		t.Errorf("%+v", l)
	}
}

func TestTunnelPassesOnTheFarEndsHalfClose(t *testing.T) {
	got := make(chan string, 1)
	addr := accept(t, func(c *net.TCPConn) {
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	r := serve(t, egress.Options{}, addr)
	c, from := r.connect(t, addr)
	if b, err := io.ReadAll(from); len(b) > 0 || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	_, _ = io.WriteString(c, "still here")
	_ = c.CloseWrite()
	if b := <-got; b != "still here" {
		t.Errorf("%q", b)
	}
}

func TestTunnelTakesWhatCameAlongWithItsHead(t *testing.T) {
	addr := echo(t)
	r := serve(t, egress.Options{}, addr)
	c := r.dial(t)
	_, _ = io.WriteString(c, "CONNECT "+addr+" HTTP/1.1\r\nHost: x\r\n\r\nearly")
	_ = c.CloseWrite()
	b, err := io.ReadAll(c)
	if want := "HTTP/1.1 200 Connection established\r\n\r\nearly"; string(b) != want || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

func TestSilentTunnelIsClosed(t *testing.T) {
	addr := echo(t)
	r := serve(t, egress.Options{IdleTimeout: 50 * time.Millisecond}, addr)
	_, from := r.connect(t, addr)
	if _, err := from.ReadByte(); err == nil {
		t.Error("a byte came from nowhere")
	}
	if l := r.audit.lines(t, 1)[0]; l.Verdict != "timeout" {
		t.Errorf("%+v", l)
	}
}

func TestTunnelWithTrafficOneWayIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 5 * time.Minute
		program, inside := net.Pipe()
		outside, server := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- egress.Join(inside, outside, idle) }()
		heard := make(chan int, 1)
		go func() {
			b, _ := io.ReadAll(program)
			heard <- len(b)
		}()
		const words = 20
		for range words {
			time.Sleep(idle - time.Second)
			if _, err := server.Write([]byte("w")); err != nil {
				t.Fatal(err)
			}
		}
		since := time.Now()
		if err := <-ended; !errors.Is(err, egress.ErrSilent) {
			t.Error(err)
		}
		if n := <-heard; n != words {
			t.Errorf("%d of %d words came through", n, words)
		}
		if quiet := time.Since(since); quiet < idle || quiet > 2*idle {
			t.Errorf("closed after %v of silence", quiet)
		}
	})
}

func TestTunnelNobodyReadsIsClosed(t *testing.T) {
	addr := accept(t, func(c *net.TCPConn) { _, _ = io.Copy(c, endless{}) })
	r := serve(t, egress.Options{IdleTimeout: 100 * time.Millisecond}, addr)
	r.connect(t, addr)
	if l := r.audit.lines(t, 1)[0]; l.Verdict != "timeout" {
		t.Errorf("%+v", l)
	}
}

// endless is a reader that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func BenchmarkTunnel(b *testing.B) {
	addr := accept(b, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	r := serve(b, egress.Options{}, addr)
	c, _ := r.connect(b, addr)
	_ = c.SetDeadline(time.Time{})
	buf := make([]byte, 256<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}
