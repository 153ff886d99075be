package inside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

const (
	// dialTimeout bounds a dial to a port of this very machine.
	dialTimeout = 5 * time.Second
	// maxCommandLine bounds the command that is reported of a process.
	maxCommandLine = 256
)

// portSource is a connection to a listening port.
type portSource struct {
	tcp    *net.TCPConn
	active *activity
}

// dialPort connects to whatever listens on port.
func (r *Runner) dialPort(ctx context.Context, port uint16) (endpoint, error) {
	d := net.Dialer{Timeout: dialTimeout}
	var errs []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if tcp, ok := c.(*net.TCPConn); ok {
			return &portSource{tcp, &r.active}, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("nothing answers on port %d: %w: %w", port, dormouse.ErrNotFound, errors.Join(errs...))
}

func (p *portSource) release() { _ = p.tcp.Close() }

func (p *portSource) serve(ctx context.Context, c *net.UnixConn) {
	stop := context.AfterFunc(ctx, func() { _ = p.tcp.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		p.active.relay(p.tcp, c)
		_ = p.tcp.CloseWrite()
		waitHangup(c)
		_ = p.tcp.Close()
	})
	p.active.relay(c, p.tcp)
	// The client may still be sending to a server that has only closed its side.
	if c.CloseWrite() != nil {
		_ = c.Close()
	}
	both.Wait()
}

// ports lists the listening ports.
func (r *Runner) ports(k *conn, f runner.Frame) ([]runner.Port, error) {
	if err := r.admitted(k, f); err != nil {
		return nil, err
	}
	sockets, err := listening()
	if err != nil {
		return nil, err
	}
	found := make([]runner.Port, 0, len(sockets))
	for _, s := range sockets {
		p := runner.Port{Port: s.at.Port(), Address: s.at.Addr().String(), PID: s.pid}
		if p.PID == os.Getpid() && s.at.String() == runner.DefaultEgressAddr {
			continue // the egress forwarder
		}
		if p.PID != 0 {
			p.Command = runner.SingleLine(commandLine(p.PID))
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b runner.Port) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address), cmp.Compare(a.PID, b.PID))
	})
	found = slices.Compact(found)
	return found[:min(len(found), runner.MaxPorts)], nil
}

// socket is a listening socket.
type socket struct {
	at  netip.AddrPort
	pid int // of a process that has it open, 0 if unknown
}
