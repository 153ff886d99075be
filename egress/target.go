package egress

import (
	"net/netip"
	"strconv"
	"strings"
)

const (
	maxName  = 253
	maxLabel = 63
)

// target is where a request wants to go, spelled in the one way we compare,
// dial and log.
type target struct {
	host string     // lower case, without a trailing dot; no brackets
	addr netip.Addr // set if host is an address
	port uint16
}

// String spells the target as host:port.
func (t target) String() string { return t.authority() + ":" + strconv.Itoa(int(t.port)) }

// authority is the host as it stands in a URI.
func (t target) authority() string {
	if t.addr.Is6() {
		return "[" + t.host + "]"
	}
	return t.host
}

// parseTarget reads host:port. A port of zero as fallback means that the port
// has to be there. What a lenient reader might take for an address (decimal,
// octal, hexadecimal, short) is refused rather than taken for a name.
func parseTarget(s string, fallback uint16) (target, error) {
	if len(s) > maxName+len(".:65535") {
		return target{}, invalid("the host is too long")
	}
	host, port, hasPort := strings.Cut(s, ":")
	inside, bracketed := strings.CutPrefix(s, "[")
	if bracketed {
		var rest string
		var closed bool
		if host, rest, closed = strings.Cut(inside, "]"); !closed {
			return target{}, invalid("the host has no closing bracket")
		}
		if port, hasPort = strings.CutPrefix(rest, ":"); !hasPort && rest != "" {
			return target{}, invalid("something follows the closing bracket")
		}
	}
	t := target{port: fallback}
	if hasPort {
		var err error
		if t.port, err = parsePort(port); err != nil {
			return target{}, err
		}
	}
	if t.port == 0 {
		return target{}, invalid("the port is missing")
	}
	var err error
	if bracketed {
		t.addr, err = parseIPv6(host)
		t.host = t.addr.String()
	} else {
		t.host, t.addr, err = parseName(host)
	}
	if err != nil {
		return target{}, err
	}
	return t, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, invalid("the port is not a number from 1 to 65535")
	}
	return uint16(n), nil
}

func parseIPv6(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil || !a.Is6():
		return netip.Addr{}, invalid("what is in brackets is not an IPv6 address")
	case a.Zone() != "":
		return netip.Addr{}, invalid("addresses with a zone are refused")
	}
	return a, nil
}

// parseName reads a name of letters, digits, hyphens and underscores, or four
// plain decimal numbers.
func parseName(s string) (string, netip.Addr, error) {
	none := netip.Addr{}
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return "", none, invalid("the host is missing")
	}
	if len(s) > maxName {
		return "", none, invalid("the host is too long")
	}
	if strings.IndexFunc(s, unfit) >= 0 {
		return "", none, invalid("the host has characters that no name has; spell others in punycode")
	}
	s = strings.ToLower(s)
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > maxLabel {
			return "", none, invalid("a part of the host is empty or too long")
		}
		last = label
	}
	if !numeric(last) {
		return s, none, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return "", none, invalid("the host looks like an address but is not four plain decimal numbers")
	}
	return a.String(), a, nil
}

// unfit reports whether no name may hold r.
func unfit(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

// numeric reports whether some reader takes a label for a number. A name whose
// last label is one is an address to that reader.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
