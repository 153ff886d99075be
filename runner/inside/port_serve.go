//go:build linux

package inside

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

const (
	// dialPatience bounds a dial to a port of this very machine.
	dialPatience = 5 * time.Second
	// maxTable bounds what is read of the kernel's table of sockets.
	maxTable = 4 << 20
	// maxCommandLine bounds the command that is reported of a process.
	maxCommandLine = 256
)

// portSource is a connection to something that listens here.
type portSource struct {
	tcp    *net.TCPConn
	active *activity
}

// dialPort connects to whatever listens on port.
func (r *Runner) dialPort(ctx context.Context, port uint16) (source, error) {
	d := net.Dialer{Timeout: dialPatience}
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

func (p *portSource) carry(ctx context.Context, c *net.UnixConn) {
	stop := context.AfterFunc(ctx, func() { _ = p.tcp.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		p.active.copy(p.tcp, c)
		_ = p.tcp.CloseWrite()
		hungUp(c)
		_ = p.tcp.Close()
	})
	p.active.copy(c, p.tcp)
	// The one who asked may still be sending to one who only stopped answering.
	if c.CloseWrite() != nil {
		_ = c.Close()
	}
	both.Wait()
}

// ports answers what listens inside.
func (r *Runner) ports(k *conn, f runner.Frame) ([]runner.Port, error) {
	if err := r.admitted(k, f); err != nil {
		return nil, err
	}
	sockets, err := listening()
	if err != nil {
		return nil, err
	}
	holders := socketHolders(sockets)
	found := make([]runner.Port, 0, len(sockets))
	for _, s := range sockets {
		p := runner.Port{Port: s.at.Port(), Address: s.at.Addr().String(), PID: holders[s.inode]}
		if p.PID == os.Getpid() && s.at.String() == runner.DefaultOutlet {
			continue // the way out is none in
		}
		if p.PID != 0 {
			p.Command = runner.Plain(commandLine(p.PID))
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b runner.Port) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address), cmp.Compare(a.PID, b.PID))
	})
	found = slices.Compact(found)
	return found[:min(len(found), runner.MaxPorts)], nil
}

// socket is one that listens.
type socket struct {
	at    netip.AddrPort
	inode uint64
}

func listening() ([]socket, error) {
	var all []socket
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without this protocol
		}
		if err != nil {
			return nil, fmt.Errorf("list ports: %w", err)
		}
		b, err := io.ReadAll(io.LimitReader(f, maxTable))
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("list ports: %w", err)
		}
		all = append(all, parseSockets(b)...)
	}
	return all, nil
}

// stateListen is how the table spells a socket that listens.
const stateListen = "0A"

// parseSockets returns the listening sockets of a table as /proc/net/tcp shows
// it. Lines that make no sense are passed over.
func parseSockets(table []byte) []socket {
	var found []socket
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if len(fields) < 10 || fields[3] != stateListen {
			continue
		}
		at, ok := parseSocketAddress(fields[1])
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if ok && err == nil {
			found = append(found, socket{at, inode})
		}
	}
	return found
}

// parseSocketAddress reads an address written as words of four bytes, each in
// the order of this machine, and a port.
func parseSocketAddress(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	b, bad := hex.DecodeString(host)
	if !ok || err != nil || bad != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok
}

// socketHolders finds a process that holds each socket, by inode.
func socketHolders(sockets []socket) map[uint64]int {
	wanted := make(map[string]uint64)
	for _, s := range sockets {
		wanted["socket:["+strconv.FormatUint(s.inode, 10)+"]"] = s.inode
	}
	holders := make(map[uint64]int)
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return holders
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		inode, ok := wanted[target]
		if err != nil || !ok || inode == 0 {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(fd, "/")[2])
		if err != nil {
			continue
		}
		if first := holders[inode]; first == 0 || pid < first { // the parent, most likely
			holders[inode] = pid
		}
	}
	return holders
}

// commandLine is how a process was called, shortened.
func commandLine(pid int) string {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxCommandLine))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))), "?")
}
