package dormouse

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Host is a host that a sandbox of a limited network may reach, or all hosts below a
// name.
type Host struct {
	name  string     // lower case, without a trailing dot or brackets
	addr  netip.Addr // set if the name is an address
	below bool       // all names below this one, and not the name itself
	ports []uint16
}

// MaxHost bounds the length of a host.
const MaxHost = len("https://*.") + maxAuthority + len("/")

// The ports that a host has which names none.
const (
	portHTTP  = 80
	portHTTPS = 443
)

// ParseHost reads example.com, *.example.com, 192.0.2.1 or [2001:db8::1], with a
// :port after it or https:// before it if only one port is meant. Without either
// the ports are 443 and 80. Names of other alphabets are written in punycode.
func ParseHost(s string) (Host, error) {
	h, err := parseHost(s)
	if err != nil {
		return Host{}, fmt.Errorf("%q is not a host such as example.com, *.example.com or example.com:8443: %w: %w", truncate(s, 80), err, ErrInvalid)
	}
	return h, nil
}

func parseHost(s string) (Host, error) {
	if len(s) > MaxHost {
		return Host{}, fmt.Errorf("it has more than %d bytes", MaxHost)
	}
	h := Host{ports: []uint16{portHTTP, portHTTPS}}
	for scheme, port := range map[string]uint16{"http://": portHTTP, "https://": portHTTPS} {
		if rest, ok := strings.CutPrefix(s, scheme); ok {
			s, h.ports = strings.TrimSuffix(rest, "/"), []uint16{port}
			break
		}
	}
	s, h.below = strings.CutPrefix(s, "*.")
	var port uint16
	var err error
	if h.name, h.addr, port, err = ParseAuthority(s); err != nil {
		return Host{}, err
	}
	if port != 0 {
		h.ports = []uint16{port}
	}
	if h.below && (h.addr.IsValid() || !strings.Contains(h.name, ".")) {
		return Host{}, errors.New("what follows *. must have two parts at least")
	}
	return h, nil
}

// Covers reports whether a host and port are meant. The host is written as in a
// request that was understood: in lower case, without a trailing dot or brackets.
func (h Host) Covers(host string, port uint16) bool {
	if !slices.Contains(h.ports, port) {
		return false
	}
	if h.below {
		return strings.HasSuffix(host, "."+h.name)
	}
	return host == h.name
}
