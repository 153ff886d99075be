package inside

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxTable bounds what is read of the kernel's table of sockets.
const maxTable = 4 << 20

// listening lists the sockets that listen.
func listening() ([]socket, error) {
	var all []tableSocket
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
	holders := socketHolders(all)
	sockets := make([]socket, len(all))
	for i, s := range all {
		sockets[i] = socket{at: s.at, pid: holders[s.inode]}
	}
	return sockets, nil
}

// tableSocket is a socket as the kernel's table has it.
type tableSocket struct {
	at    netip.AddrPort
	inode uint64
}

// stateListen is the state of a listening socket in the table.
const stateListen = "0A"

// parseSockets returns the listening sockets of a table as /proc/net/tcp shows
// it. Lines that make no sense are passed over.
func parseSockets(table []byte) []tableSocket {
	var found []tableSocket
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if len(fields) < 10 || fields[3] != stateListen {
			continue
		}
		at, ok := parseSocketAddress(fields[1])
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if ok && err == nil {
			found = append(found, tableSocket{at, inode})
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
func socketHolders(sockets []tableSocket) map[uint64]int {
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
