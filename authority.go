package dormouse

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

const (
	maxName  = 253
	maxLabel = 63
	// maxAuthority is the longest name with a trailing dot and a port.
	maxAuthority = maxName + len(".:65535")
)

// ParseAuthority reads host, host:port, [IPv6] or [IPv6]:port in the one way in
// which hosts are compared, dialled and logged: in lower case, without a trailing
// dot or brackets. The address is set if the host is one, and the port is 0 if there
// is none. What programs could read in two ways is an error.
func ParseAuthority(s string) (host string, addr netip.Addr, port uint16, err error) {
	if len(s) > maxAuthority {
		return "", addr, 0, errLongHost
	}
	host, digits, has := strings.Cut(s, ":")
	inside, bracketed := strings.CutPrefix(s, "[")
	if bracketed {
		var rest string
		var closed bool
		if host, rest, closed = strings.Cut(inside, "]"); !closed {
			return "", addr, 0, errors.New("the host has no closing bracket")
		}
		if digits, has = strings.CutPrefix(rest, ":"); !has && rest != "" {
			return "", addr, 0, errors.New("something follows the closing bracket")
		}
	}
	if has {
		if port, err = parsePort(digits); err != nil {
			return "", addr, 0, err
		}
	}
	if bracketed {
		addr, err = parseIPv6(host)
		return addr.String(), addr, port, err
	}
	host, addr, err = parseName(host)
	return host, addr, port, err
}

var errLongHost = errors.New("the host is too long")

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, errors.New("the port is not a number from 1 to 65535")
	}
	return uint16(n), nil
}

func parseIPv6(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil || !a.Is6():
		return netip.Addr{}, errors.New("what is in brackets is not an IPv6 address")
	case a.Zone() != "":
		return netip.Addr{}, errors.New("addresses with a zone are refused")
	}
	return a, nil
}

// parseName reads a name of letters, digits, hyphens and underscores, or four
// plain decimal numbers. What a lenient reader might take for an address (decimal,
// octal, hexadecimal, short) is refused rather than taken for a name.
func parseName(s string) (string, netip.Addr, error) {
	none := netip.Addr{}
	s = strings.TrimSuffix(s, ".")
	switch {
	case s == "":
		return "", none, errors.New("the host is missing")
	case len(s) > maxName:
		return "", none, errLongHost
	case strings.IndexFunc(s, unfit) >= 0:
		return "", none, errors.New("the host has characters that no name has; spell others in punycode")
	}
	s = strings.ToLower(s)
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > maxLabel {
			return "", none, errors.New("a part of the host is empty or too long")
		}
		last = label
	}
	if !numeric(last) {
		return s, none, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return "", none, errors.New("the host looks like an address but is not four plain decimal numbers")
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
