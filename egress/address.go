package egress

import "net/netip"

// class is a range of addresses that no program in a sandbox has business with,
// in words that end "it is …".
type class struct {
	prefix netip.Prefix
	words  string
}

// classes holds what is refused. The first that matches names the reason.
var classes = []class{
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of “this network”"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a carrier's shared address"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "an address of protocol assignments"},
	{netip.MustParsePrefix("192.0.2.0/24"), "a documentation address"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a benchmark address"},
	{netip.MustParsePrefix("198.51.100.0/24"), "a documentation address"},
	{netip.MustParsePrefix("203.0.113.0/24"), "a documentation address"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},

	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("::/96"), "an IPv4-compatible address"},
	{netip.MustParsePrefix("64:ff9b::/96"), "a NAT64 address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a NAT64 address"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address"},
	{netip.MustParsePrefix("2001::/23"), "an address of protocol assignments"},
	{netip.MustParsePrefix("2001:db8::/32"), "a documentation address"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address"},
	{netip.MustParsePrefix("3fff::/20"), "a documentation address"},
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("fec0::/10"), "a site-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

// global is where IPv6 addresses are handed out at all.
var global = netip.MustParsePrefix("2000::/3")

// classify says why an address is refused, or nothing if it is a public one.
func classify(a netip.Addr) string {
	for _, c := range classes {
		if c.prefix.Contains(a) {
			return c.words
		}
	}
	if a.Is4() {
		return ""
	}
	if isatap(a) {
		return "an ISATAP address"
	}
	if !global.Contains(a) {
		return "not a public address"
	}
	return ""
}

// isatap reports whether the lower half of an IPv6 address says that it holds
// an IPv4 address.
func isatap(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// malformed says why an address is refused whatever is allowed: it is another notation of
// an address that must be given directly.
func malformed(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "not an address"
	case a.Is4In6():
		return "an IPv4-mapped address"
	case a.Zone() != "":
		return "an address with a zone"
	case a.IsUnspecified():
		return "the unspecified address"
	}
	return ""
}
