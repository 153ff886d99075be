package inside

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse/runner/proctree"
)

// listening lists the sockets that listen, as lsof, which is part of macOS, shows them.
func listening() ([]socket, error) {
	out, err := exec.Command("/usr/sbin/lsof", "-nP", "-iTCP", "-sTCP:LISTEN", "-Fpn").Output() //nolint:noctx // it waits for nothing
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 && len(out) == 0 {
		return nil, nil // there is no listener
	}
	if err != nil && len(out) == 0 {
		return nil, fmt.Errorf("list ports: %w", err)
	}
	return parseLsof(out), nil
}

// parseLsof reads lines of one field each: p and a process, then n and an address for
// each of its sockets. Lines that make no sense are passed over.
func parseLsof(out []byte) []socket {
	var found []socket
	pid := 0
	for line := range bytes.Lines(out) {
		field := strings.TrimSpace(string(line))
		if number, ok := strings.CutPrefix(field, "p"); ok {
			pid, _ = strconv.Atoi(number)
		}
		name, ok := strings.CutPrefix(field, "n")
		if !ok {
			continue
		}
		if port, ok := strings.CutPrefix(name, "*:"); ok {
			name = "0.0.0.0:" + port
		}
		if at, err := netip.ParseAddrPort(name); err == nil {
			found = append(found, socket{at: at, pid: pid})
		}
	}
	return found
}

// commandLine is how a process was called, shortened.
func commandLine(pid int) string {
	words := proctree.Process{PID: pid}.Command()
	return strings.ToValidUTF8(words[:min(len(words), maxCommandLine)], "?")
}
