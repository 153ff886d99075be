// Package hostname reads the names of hosts in the one way in which they are
// compared, dialled and logged. What programs could read in two ways is refused.
package hostname

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// Longest is how long a name may be.
const Longest = 253

const longestLabel = 63

// What is wrong with a host, in words that follow its name.
var (
	errMissing    = errors.New("the host is missing")
	errLong       = errors.New("the host is too long")
	errCharacters = errors.New("the host has characters that no name has; spell others in punycode")
	errPart       = errors.New("a part of the host is empty or too long")
	errNumbers    = errors.New("the host looks like an address but is not four plain decimal numbers")
	errBrackets   = errors.New("what is in brackets is not an IPv6 address")
	errZone       = errors.New("addresses with a zone are refused")
	errUnclosed   = errors.New("the host has no closing bracket")
	errTrailing   = errors.New("something follows the closing bracket")
	errPort       = errors.New("the port is not a number from 1 to 65535")
)

// Parse reads a name of letters, digits, hyphens and underscores, or four plain
// decimal numbers. What a lenient reader might take for an address (decimal,
// octal, hexadecimal, short) is refused rather than taken for a name. The name
// is in lower case and has no trailing dot.
func Parse(s string) (string, netip.Addr, error) {
	none := netip.Addr{}
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return "", none, errMissing
	}
	if len(s) > Longest {
		return "", none, errLong
	}
	if strings.IndexFunc(s, unfit) >= 0 {
		return "", none, errCharacters
	}
	s = strings.ToLower(s)
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > longestLabel {
			return "", none, errPart
		}
		last = label
	}
	if !numeric(last) {
		return s, none, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return "", none, errNumbers
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

// ParseIPv6 reads an address as it stands in brackets.
func ParseIPv6(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil || !a.Is6():
		return netip.Addr{}, errBrackets
	case a.Zone() != "":
		return netip.Addr{}, errZone
	}
	return a, nil
}

// Split takes host and port apart. A host in brackets is without them, and the
// port is zero if there is none.
func Split(s string) (host string, port uint16, bracketed bool, err error) {
	host, digits, has := strings.Cut(s, ":")
	inside, bracketed := strings.CutPrefix(s, "[")
	if bracketed {
		var rest string
		var closed bool
		if host, rest, closed = strings.Cut(inside, "]"); !closed {
			return "", 0, true, errUnclosed
		}
		if digits, has = strings.CutPrefix(rest, ":"); !has && rest != "" {
			return "", 0, true, errTrailing
		}
	}
	if has {
		port, err = parsePort(digits)
	}
	return host, port, bracketed, err
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, errPort
	}
	return uint16(n), nil
}
