package dormouse

import (
	"fmt"
	"slices"
	"strings"
)

// Environment describes the sandboxes of a session and what they may do. The server fills
// in what it leaves open once, when the session is created. The result holds for all
// sandboxes of the session, even if the server's defaults change.
type Environment struct {
	// Image is what a sandbox starts from: a reference to a registry, tarball:FILE,
	// oci:DIR, dir:DIR, or HostImage.
	Image   string  `json:"image,omitempty"`
	Network Network `json:"network,omitempty"`
	// Hosts are those that a limited network leads to; see ParseHost.
	Hosts []string `json:"hosts,omitempty"`
	// PackageManagers says that a limited network leads to where packages come from,
	// too. Which hosts that are the server knows.
	PackageManagers bool     `json:"package_managers,omitempty"`
	Packages        Packages `json:"packages,omitzero"`
	Limits          Limits   `json:"limits,omitzero"`
	// Snapshots says when they are taken by themselves.
	Snapshots SnapshotPolicy `json:"snapshots,omitempty"`
}

// HostImage is the image that is none: the programs of the machine itself.
const HostImage = "host"

// Network says whether anything leaves a sandbox.
type Network string

// The networks.
const (
	NetworkOn  Network = "on"
	NetworkOff Network = "off"
	// NetworkLimited is one that leads to the hosts named and nowhere else.
	NetworkLimited Network = "limited"
)

// Limits bounds a sandbox. Zero leaves a limit open, Unlimited says that there is
// none.
type Limits struct {
	CPUs   float64 `json:"cpus,omitempty"`
	Memory int64   `json:"memory,omitempty"` // bytes
	Pids   int64   `json:"pids,omitempty"`
	Disk   int64   `json:"disk,omitempty"` // bytes of all files of a session
	Inodes int64   `json:"inodes,omitempty"`
	Files  int64   `json:"files,omitempty"` // open at once in one process
}

// Unlimited means that there is no limit. Only a server sets it, never a client.
const Unlimited = -1

// What an environment may hold.
const (
	MaxImage = 1024 // bytes
	MaxHosts = 100
)

// Validate refuses an environment that could not be.
func (e Environment) Validate() error {
	if err := ValidateText(e.Image); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if len(e.Image) > MaxImage || strings.ContainsAny(e.Image, " \t\r\n") {
		return fmt.Errorf("image %q must be a reference of at most %d bytes without spaces: %w", truncate(e.Image, 40), MaxImage, ErrInvalid)
	}
	if err := e.Snapshots.Validate(); err != nil {
		return err
	}
	if err := e.validateNetwork(); err != nil {
		return err
	}
	if err := e.Packages.Validate(); err != nil {
		return fmt.Errorf("packages.%w", err)
	}
	return e.Limits.Validate()
}

func (e Environment) validateNetwork() error {
	switch e.Network {
	case "", NetworkOn, NetworkOff, NetworkLimited:
	default:
		return fmt.Errorf("network is %q; it must be on, limited or off: %w", truncate(string(e.Network), 40), ErrInvalid)
	}
	limited := e.Network == NetworkLimited
	switch {
	case len(e.Hosts) > 0 && !limited:
		return fmt.Errorf("hosts are for a network that is limited: %w", ErrInvalid)
	case e.PackageManagers && !limited:
		return fmt.Errorf("package_managers is for a network that is limited: %w", ErrInvalid)
	case len(e.Hosts) > MaxHosts:
		return fmt.Errorf("there are %d hosts; %d are the most: %w", len(e.Hosts), MaxHosts, ErrInvalid)
	case !e.Packages.IsZero() && e.Network == NetworkOff:
		return fmt.Errorf("packages need a network, and it is off: %w", ErrInvalid)
	case !e.Packages.IsZero() && limited && !e.PackageManagers:
		return fmt.Errorf("packages need package_managers when the network is limited: %w", ErrInvalid)
	}
	for i, h := range e.Hosts {
		if _, err := ParseHost(h); err != nil {
			return fmt.Errorf("hosts[%d]: %w", i, err)
		}
	}
	return nil
}

// Equal reports whether two environments are the same.
func (e Environment) Equal(other Environment) bool {
	return e.Image == other.Image && e.Network == other.Network && slices.Equal(e.Hosts, other.Hosts) && e.PackageManagers == other.PackageManagers &&
		e.Packages.Equal(other.Packages) && e.Limits == other.Limits && e.Snapshots == other.Snapshots
}

// IsZero reports whether an environment leaves everything open.
func (e Environment) IsZero() bool { return e.Equal(Environment{}) }

// limit is one limit by the name of its field, and the range of values that make sense.
type limit struct {
	name               string
	value, least, most float64
}

func (l Limits) all() []limit {
	return []limit{
		{"cpus", l.CPUs, 0.1, 1 << 16},
		{"memory", float64(l.Memory), 128 << 20, 1 << 50},
		{"pids", float64(l.Pids), 16, 1 << 22},
		{"disk", float64(l.Disk), 64 << 20, 16 << 40},
		{"inodes", float64(l.Inodes), 256, 1 << 32},
		{"files", float64(l.Files), 64, 1 << 30},
	}
}

// Validate refuses limits that nothing could live within.
func (l Limits) Validate() error {
	for _, v := range l.all() {
		if v.value == 0 || v.value == Unlimited || v.value >= v.least && v.value <= v.most { // which no NaN is
			continue
		}
		return fmt.Errorf("limits.%s is %s; it must be between %s and %s: %w", v.name, number(v.value), number(v.least), number(v.most), ErrInvalid)
	}
	return nil
}

// Within refuses limits that exceed those of of, or that are unlimited although of is
// not.
func (l Limits) Within(of Limits) error {
	most := of.all()
	for i, v := range l.all() {
		switch {
		case v.value == Unlimited:
			return fmt.Errorf("limits.%s cannot be %d; leave it out for as much as this server gives: %w", v.name, Unlimited, ErrInvalid)
		case most[i].value > 0 && v.value > most[i].value:
			return fmt.Errorf("limits.%s is %s; this server gives at most %s: %w", v.name, number(v.value), number(most[i].value), ErrInvalid)
		}
	}
	return nil
}

// Or fills what l leaves open with what other says.
func (l Limits) Or(other Limits) Limits {
	fill(&l.CPUs, other.CPUs)
	fill(&l.Memory, other.Memory)
	fill(&l.Pids, other.Pids)
	fill(&l.Disk, other.Disk)
	fill(&l.Inodes, other.Inodes)
	fill(&l.Files, other.Files)
	return l
}

func fill[T int64 | float64](at *T, value T) {
	if *at == 0 {
		*at = value
	}
}

// number formats a limit without an exponent.
func number(v float64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
}
