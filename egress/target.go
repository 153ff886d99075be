package egress

import (
	"cmp"
	"net/netip"
	"strconv"

	"github.com/dormouse-run/dormouse"
)

// target is the destination of a request, in the canonical form that is compared, dialled
// and logged.
type target struct {
	host string     // lower case, without a trailing dot; no brackets
	addr netip.Addr // set if host is an address
	port uint16
}

// String is the target as host:port.
func (t target) String() string { return t.authority() + ":" + strconv.Itoa(int(t.port)) }

// authority is the host as it stands in a URI.
func (t target) authority() string {
	if t.addr.Is6() {
		return "[" + t.host + "]"
	}
	return t.host
}

// parseTarget reads host:port. A port of zero as fallback means that the port
// has to be there.
func parseTarget(s string, fallback uint16) (target, error) {
	host, addr, port, err := dormouse.ParseAuthority(s)
	if err != nil {
		return target{}, invalid(err.Error())
	}
	t := target{host: host, addr: addr, port: cmp.Or(port, fallback)}
	if t.port == 0 {
		return target{}, invalid("the port is missing")
	}
	return t, nil
}
