package egress

import (
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
)

// Network says how far a session's network leads.
type Network int

// The networks. The zero value is the safe one.
const (
	Off Network = iota
	On
	// Limited leads to hosts that are named, by name: what a name leads to is checked
	// as for everyone.
	Limited
)

// Policy is what a session may do.
type Policy struct {
	Network Network
	// Hosts are those that a limited network leads to.
	Hosts []dormouse.Host
	// Packages says that it leads to where packages come from, too.
	Packages bool
}

// check refuses a request to t that the policy does not allow. The hosts of packages are
// looked up only if the decision depends on them.
func (p Policy) check(t target, packages func() []dormouse.Host) error {
	covers := func(h dormouse.Host) bool { return h.Covers(t.host, t.port) }
	switch {
	case p.Network == On:
		return nil
	case p.Network != Limited:
		return &refusal{why: "the network of this session is off"}
	case slices.ContainsFunc(p.Hosts, covers):
		return nil
	}
	known := slices.ContainsFunc(packages(), covers)
	if known && p.Packages {
		return nil
	}
	no := &refusal{
		why:    "the network of this session is limited, and this is not among its hosts",
		remedy: fmt.Sprintf("A session whose environment has %q among its hosts may reach it.", t.entry()),
	}
	switch {
	case known:
		no.remedy += " Packages come from there: package_managers in the environment allows it, too."
	case p.Packages:
		no.remedy += " If packages come from there, the operator of the server can say so with " + PackageFlag + " " + t.entry() + "."
	}
	return no
}

// PackageFlag is the flag that says where packages come from. Refusals name it.
const PackageFlag = "--package-hosts"

// entry is a target in the form of the hosts of an environment.
func (t target) entry() string {
	if t.port == plainPort || t.port == securePort {
		return t.authority()
	}
	return t.String()
}
