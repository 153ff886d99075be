//go:build linux

// Package impostor plays the runner of a sandbox from inside it: it has the secret, as
// every command there may, and sends what no runner would.
package impostor

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/runner"
)

// Runner is what the true one was told of where it finds its server.
type Runner struct {
	Socket, Secret, State, Proxy string

	known string // the secret itself, if it was read already
	door  *flood // nil unless it floods the server
}

// Find reads that from the command line of the first process. Without it, things
// are where they were once.
func Find() Runner {
	r := Runner{Socket: "/.dormouse/run/socket", Secret: "/.dormouse/run/secret", State: "/.dormouse/run/state", Proxy: "127.0.0.1:3128"}
	line, err := os.ReadFile("/proc/1/cmdline")
	if err != nil {
		return r
	}
	args := strings.Split(string(line), "\x00")
	for name, value := range map[string]*string{"-socket": &r.Socket, "-secret": &r.Secret, "-dir": &r.State} {
		if at := slices.Index(args, name); at >= 0 && at+1 < len(args) {
			*value = args[at+1]
		}
	}
	return r
}

// Alone keeps the true runner from coming back, which would take the server's ear at
// once: without its secret it cannot, nor if every place at the server's door is taken.
// It returns what lets it.
func (r Runner) Alone() (Runner, func()) {
	if b, err := os.ReadFile(r.Secret); err == nil {
		r.known = string(bytes.TrimSpace(b))
	}
	away := r.Secret + ".away"
	if os.Rename(r.Secret, away) == nil {
		return r, func() { _ = os.Rename(away, r.Secret) }
	}
	r.door = r.flood()
	return r, r.door.leave
}

// handshakeTimeout is how long the server may take over one step of a handshake.
const handshakeTimeout = 5 * time.Second

// Conn is a connection that the server takes for its runner's.
type Conn struct {
	net.Conn
	// Fence is what it was bound to.
	Fence runner.Fence
}

// dial connects and says nothing.
func (r Runner) dial() (net.Conn, error) {
	if r.door != nil {
		return r.door.call()
	}
	c, err := net.DialTimeout("unix", r.Socket, handshakeTimeout)
	if err != nil {
		return nil, fmt.Errorf("reach the server: %w", err)
	}
	return c, c.SetDeadline(time.Now().Add(handshakeTimeout))
}

// secret reads what the runner proves itself with.
func (r Runner) secret() (string, error) {
	if r.known != "" {
		return r.known, nil
	}
	b, err := os.ReadFile(r.Secret)
	return string(bytes.TrimSpace(b)), err
}

// Bind says hello, with more in it if that is wanted, and takes the fence it is told.
func (r Runner) Bind(hello runner.Hello) (*Conn, error) {
	secret, err := r.secret()
	if err != nil {
		return nil, err
	}
	c, err := r.dial()
	if err != nil {
		return nil, err
	}
	bound := &Conn{Conn: c}
	if err := bound.bind(secret, hello); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return bound, nil
}

func (c *Conn) bind(secret string, hello runner.Hello) error {
	hello.Protocol, hello.Secret = runner.Protocol, secret
	if err := c.Say(runner.Frame{Kind: runner.KindHello, Hello: &hello}); err != nil {
		return err
	}
	f, err := c.Hear()
	if err != nil {
		return err
	}
	if f.Kind != runner.KindBind || f.Fence == nil {
		return fmt.Errorf("the server says %q", f.Kind)
	}
	c.Fence = *f.Fence
	return c.Say(runner.Frame{Kind: runner.KindBound})
}

// Say sends a frame.
func (c *Conn) Say(f runner.Frame) error {
	b, err := runner.AppendFrame(nil, f)
	if err != nil {
		return err
	}
	return c.Raw(b)
}

// Raw sends bytes.
func (c *Conn) Raw(b []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}

// Hear reads a frame.
func (c *Conn) Hear() (runner.Frame, error) {
	if err := c.SetReadDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return runner.Frame{}, err
	}
	return runner.ReadFrame(c, runner.FromServer())
}
