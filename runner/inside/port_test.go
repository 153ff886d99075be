//go:build linux

package inside_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// service listens like something inside a sandbox would.
func service(t *testing.T, address string, serve func(*net.TCPConn)) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip(err) // a machine without this protocol
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c.(*net.TCPConn))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// loud answers what it was sent once that has ended.
func loud(c *net.TCPConn) {
	b, _ := io.ReadAll(c)
	_, _ = c.Write([]byte(strings.ToUpper(string(b))))
}

func port(n uint16) runner.Stream { return runner.Stream{Port: &runner.PortStream{Port: n}} }

func TestPortCarriesBytesAndTheirEnd(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			_, l := open(t)
			n := service(t, address, loud)
			for range 3 {
				c := stream(t, l, port(n))
				types(t, c, "hello")
				if err := c.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(c); err != nil || string(b) != "HELLO" {
					t.Errorf("answered %q, %v", b, err)
				}
				_ = c.Close()
			}
		})
	}
}

func TestPortIsNotReadFasterThanItsClientReads(t *testing.T) {
	_, l := open(t)
	const size = 64 << 20
	n := service(t, "127.0.0.1:0", func(c *net.TCPConn) { _, _ = io.CopyN(c, zero{}, size) })
	c := stream(t, l, port(n))
	do(t, l, exec("true")) // ops go on while the stream is not read
	if got, err := io.Copy(io.Discard, c); err != nil || got != size {
		t.Errorf("carried %d bytes, %v", got, err)
	}
}

type zero struct{}

func (zero) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestClientThatLeavesEndsThePort(t *testing.T) {
	_, l := open(t)
	left := make(chan error, 1)
	n := service(t, "127.0.0.1:0", func(c *net.TCPConn) {
		// It accepts the end of its input, but not the end of its reader.
		_, _ = io.ReadAll(c)
		for {
			if _, err := c.Write(make([]byte, 1<<10)); err != nil {
				left <- err
				return
			}
		}
	})
	c := stream(t, l, port(n))
	_ = c.CloseWrite()
	if _, err := io.ReadFull(c, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	<-left
}

func TestPortThatNobodyListensOnIsRefused(t *testing.T) {
	_, l := open(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := uint16(free.Addr().(*net.TCPAddr).Port)
	_ = free.Close()
	_, err = l.Open(deadline(t), port(n))
	if !errors.Is(err, dormouse.ErrNotFound) || !strings.Contains(err.Error(), fmt.Sprint(n)) {
		t.Errorf("opened: %v", err)
	}
}

func TestPortsSaysWhoListens(t *testing.T) {
	_, l := open(t)
	n := service(t, "127.0.0.1:0", loud)
	all, err := l.Ports(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		if i > 0 && p.Port < all[i-1].Port {
			t.Errorf("%d comes after %d", p.Port, all[i-1].Port)
		}
		if p.Port != n {
			continue
		}
		if p.Address != "127.0.0.1" || p.PID != os.Getpid() || !strings.Contains(p.Command, ".test") {
			t.Errorf("port: %+v", p)
		}
		return
	}
	t.Errorf("port %d is not among %v", n, all)
}
