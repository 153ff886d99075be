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

	// ownAge is how old our knowledge of the machine's addresses may be.
	ownAge = 3 * time.Second
)

// guard says which addresses may be dialled. It is asked for every address of a
// name, and again by the dialer about the very address it connects to.
type guard struct {
	allow     Allow
	listeners []netip.AddrPort
	names     map[string]bool // of the server itself, as target spells them, with the port
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
	ours, err := g.own.has(a)
	if err != nil {
		return err
	}
	if g.names[t.String()] || g.listens(a, t.port, ours) {
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
	if ours && !a.IsLoopback() && !g.allow.singles(a) {
		return &refusal{why: "it is an address of the machine that sandboxes run on", entry: t.String()}
	}
	return nil
}

// ownNames spells names as targets are. What is none leads nowhere.
func ownNames(names []string) map[string]bool {
	spelled := make(map[string]bool, len(names))
	for _, name := range names {
		if t, err := parseTarget(name, 0); err == nil {
			spelled[t.String()] = true
		}
	}
	return spelled
}

// listens reports whether the server itself would answer.
func (g *guard) listens(a netip.Addr, port uint16, ours bool) bool {
	for _, l := range g.listeners {
		at := l.Addr().Unmap().WithZone("")
		if l.Port() == port && (at == a || at.IsUnspecified() && (ours || a.IsLoopback())) {
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
