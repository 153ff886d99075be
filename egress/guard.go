package egress

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	mailPort = 25

	// ownAge is how long the list of the machine's addresses is cached.
	ownAge = 3 * time.Second
)

// guard says which addresses may be dialled. It is asked for every address of a
// name, and again by the dialer about the very address it connects to.
type guard struct {
	allow     Allow
	listeners []netip.AddrPort
	names     map[string]bool // of the server itself, in the form of target.String
	own       own
}

// check refuses an address that t must not lead to. From the strongest: the
// server's own listeners need their address and port to be allowed; a name with
// its port may lead anywhere else; the machine's own addresses need to be
// allowed one by one; the rest may be allowed by prefix.
func (g *guard) check(t target, a netip.Addr) error {
	if bad := malformed(a); bad != "" {
		return &refusal{why: "it is " + bad}
	}
	if g.allow.addresses[netip.AddrPortFrom(a, t.port)] {
		return nil
	}
	own, err := g.own.has(a)
	if err != nil {
		return err
	}
	if g.names[t.String()] || g.listens(a, t.port, own) {
		return &refusal{why: "it is this server", entry: "ADDRESS:PORT"}
	}
	if g.allow.names[t.String()] {
		return nil
	}
	if t.port == mailPort {
		return &refusal{why: "port 25 is for mail servers", entry: t.String()}
	}
	if words := classify(a); words != "" && !g.allow.covers(a) {
		return &refusal{why: "it is " + words, entry: t.String()}
	}
	if own && !a.IsLoopback() && !g.allow.singles(a) {
		return &refusal{why: "it is an address of the machine that sandboxes run on", entry: t.String()}
	}
	return nil
}

// ownNames writes names in the form of targets. What is not a valid target is left out.
func ownNames(names []string) map[string]bool {
	targets := make(map[string]bool, len(names))
	for _, name := range names {
		if t, err := parseTarget(name, 0); err == nil {
			targets[t.String()] = true
		}
	}
	return targets
}

// listens reports whether the server itself listens there.
func (g *guard) listens(a netip.Addr, port uint16, own bool) bool {
	for _, l := range g.listeners {
		at := l.Addr().Unmap().WithZone("")
		if l.Port() == port && (at == a || at.IsUnspecified() && (own || a.IsLoopback())) {
			return true
		}
	}
	return false
}

// own knows the addresses of this machine.
type own struct {
	read func() ([]net.Addr, error)

	mu    sync.Mutex
	since time.Time           // guarded by mu
	addrs map[netip.Addr]bool // guarded by mu
}

func (o *own) has(a netip.Addr) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.addrs == nil || time.Since(o.since) > ownAge {
		found, err := o.read()
		if err != nil {
			o.addrs = nil
			return false, fmt.Errorf("read the addresses of this machine: %w", err)
		}
		o.addrs, o.since = make(map[netip.Addr]bool, len(found)), time.Now()
		for _, f := range found {
			if p, err := netip.ParsePrefix(f.String()); err == nil {
				o.addrs[p.Addr().Unmap()] = true
			}
		}
	}
	return o.addrs[a], nil
}
