package egress

import (
	"net"
	"net/netip"
	"time"
)

// ErrSilent is how a silent tunnel ends.
var ErrSilent = errSilent

// Join carries bytes between two connections.
func Join(inside, outside net.Conn, idle time.Duration) error {
	return join(inside, outside, idle, newRecord("CONNECT"))
}

// ParseTarget parses host:port and returns it in the form that is dialled.
func ParseTarget(s string, fallback uint16) (string, error) {
	t, err := parseTarget(s, fallback)
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

// Check asks the guard about one address of a target.
func (p *Proxy) Check(to string, a netip.Addr) error {
	t, err := parseTarget(to, 0)
	if err != nil {
		return err
	}
	return p.guard.check(t, a)
}

// Control asks as the dialer does.
func (p *Proxy) Control(to, address string) error {
	t, err := parseTarget(to, 0)
	if err != nil {
		return err
	}
	return p.control(t, address)
}

// SetInterfaces replaces what the machine says of its addresses.
func (p *Proxy) SetInterfaces(read func() ([]net.Addr, error)) { p.guard.own.read = read }
