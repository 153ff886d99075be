package egress

import (
	"fmt"
	"net/netip"
)

// AllowFlag is the flag that fills an Allow. Refusals name it.
const AllowFlag = "--egress-allow"

// Allow is what the operator lets sandboxes reach beyond the public internet.
// The zero value allows nothing more.
type Allow struct {
	prefixes  []netip.Prefix
	addresses map[netip.AddrPort]bool
	names     map[string]bool // in the form of target.String
}

// ParseAllow reads entries of four kinds: a prefix (10.1.0.0/16), an address,
// address:port, and name:port.
func ParseAllow(entries []string) (Allow, error) {
	a := Allow{addresses: make(map[netip.AddrPort]bool), names: make(map[string]bool)}
	for _, e := range entries {
		if err := a.add(e); err != nil {
			return Allow{}, fmt.Errorf("allow %q: %w", e, err)
		}
	}
	return a, nil
}

func (a *Allow) add(entry string) error {
	if addr, err := netip.ParseAddr(entry); err == nil {
		return a.addPrefix(addr, addr.BitLen())
	}
	if p, err := netip.ParsePrefix(entry); err == nil {
		return a.addPrefix(p.Addr(), p.Bits())
	}
	t, err := parseTarget(entry, 0)
	if err != nil {
		return err
	}
	if !t.addr.IsValid() {
		a.names[t.String()] = true
		return nil
	}
	if bad := malformed(t.addr); bad != "" {
		return invalid("it is " + bad)
	}
	a.addresses[netip.AddrPortFrom(t.addr, t.port)] = true
	return nil
}

func (a *Allow) addPrefix(addr netip.Addr, bits int) error {
	if addr.Is4In6() || addr.Zone() != "" {
		return invalid("it is " + malformed(addr))
	}
	a.prefixes = append(a.prefixes, netip.PrefixFrom(addr, bits).Masked())
	return nil
}

// covers reports whether a prefix holds the address.
func (a *Allow) covers(addr netip.Addr) bool {
	for _, p := range a.prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// singles reports whether the address itself is listed.
func (a *Allow) singles(addr netip.Addr) bool {
	for _, p := range a.prefixes {
		if p.IsSingleIP() && p.Addr() == addr {
			return true
		}
	}
	return false
}
