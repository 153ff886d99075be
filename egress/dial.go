package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

const (
	// maxAddresses is how many of a name's addresses are tried.
	maxAddresses = 8
	// minShare is the least one of them is given.
	minShare = 2 * time.Second
)

// Resolver turns names into addresses. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dial connects to host:port as the proxy does for a sandbox, with the same
// refusals: for what the server itself fetches because somebody else said so.
func (p *Proxy) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	t, err := parseTarget(address, 0)
	if err != nil {
		return nil, err
	}
	return p.dial(ctx, t)
}

// dial connects to t, or says why that must not be. One bad address
// refuses the name: its resolver is not trusted with the others.
func (p *Proxy) dial(ctx context.Context, t target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.DialTimeout)
	defer cancel()
	addrs, err := p.resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if err := p.guard.check(t, a); err != nil {
			return nil, err
		}
	}
	addrs = addrs[:min(len(addrs), maxAddresses)]
	var first error
	for i, a := range addrs {
		c, err := p.dialAddress(ctx, t, a, len(addrs)-i)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// resolve looks a name up as it stands, for a search list would turn it into
// another one. Names that the operator listed are looked up as the operator's
// own programs do.
func (p *Proxy) resolve(ctx context.Context, t target) ([]netip.Addr, error) {
	if t.addr.IsValid() {
		return []netip.Addr{t.addr}, nil
	}
	name := t.host + "."
	if p.opts.Allow.names[t.String()] {
		name = t.host
	}
	addrs, err := p.opts.Resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no addresses", Name: t.host, IsNotFound: true}
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap() // the resolver may give IPv4 in either form
	}
	return addrs, nil
}

// dialAddress gives one address its share of the time that is left.
func (p *Proxy) dialAddress(ctx context.Context, t target, a netip.Addr, left int) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok {
		share := max(time.Until(end)/time.Duration(left), minShare)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	d := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return p.control(t, address) }}
	return d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, t.port).String())
}

// control is called by the dialer with the address that it is about to connect to, so that
// the address that is checked is the one that is dialled.
func (p *Proxy) control(t target, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if to.Port() != t.port {
		return errors.New("the dialer changed the port")
	}
	return p.guard.check(t, to.Addr())
}
