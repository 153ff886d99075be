package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// environmentFlags are the flags that describe the environment of a session's sandboxes.
type environmentFlags struct {
	dormouse.Environment
	network, snapshots, memory, disk string
	packages                         []string
}

func (e *environmentFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&e.Image, "image", "", "what its sandboxes start from: an image `reference`, or what --image-allow of the server names")
	f.StringVar(&e.network, "network", "", "on, limited or off: `whether` its sandboxes reach anything")
	f.StringSliceVar(&e.Hosts, "allow-host", nil, "`host` that its sandboxes may reach, such as example.com, *.example.com or example.com:8443; the network is limited to these")
	f.BoolVar(&e.PackageManagers, "package-managers", false, "let a limited network reach where packages come from, too")
	f.StringArrayVar(&e.packages, "packages", nil, "`MANAGER:NAME` of a package that its sandboxes have, such as pip:requests==2.32.0; managers are apt, cargo, gem, go, npm and pip")
	f.StringVar(&e.snapshots, "snapshots", "", "turn, call or off: `when` snapshots of its workspace are taken by themselves")
	f.Float64Var(&e.Limits.CPUs, "cpus", 0, "processors that its sandbox may use; at most those of the server, as for all limits")
	f.StringVar(&e.memory, "memory", "", "memory that its sandbox may use, such as 512M")
	f.Int64Var(&e.Limits.Pids, "pids", 0, "processes that its sandbox may have")
	f.StringVar(&e.disk, "disk", "", "room that its files may take, such as 2G")
	f.Int64Var(&e.Limits.Inodes, "inodes", 0, "files that it may have")
	f.Int64Var(&e.Limits.Files, "files", 0, "files that one process may have open")
}

// request is the environment that was asked for. The server knows what it may be.
func (e *environmentFlags) request() (_ dormouse.Environment, err error) {
	asked := e.Environment
	switch e.network { // the environment may say it as the server's flag does
	case "true":
		asked.Network = dormouse.NetworkOn
	case "false":
		asked.Network = dormouse.NetworkOff
	default:
		asked.Network = dormouse.Network(e.network)
	}
	if e.network == "" && (len(asked.Hosts) > 0 || asked.PackageManagers) {
		asked.Network = dormouse.NetworkLimited
	}
	for _, p := range e.packages {
		manager, name, _ := strings.Cut(p, ":")
		if asked.Packages, err = asked.Packages.With(manager, name); err != nil {
			return asked, usage("--packages %s: %w", p, err)
		}
	}
	asked.Snapshots = dormouse.SnapshotPolicy(e.snapshots)
	for _, size := range []struct {
		flag, text string
		at         *int64
	}{{"memory", e.memory, &asked.Limits.Memory}, {"disk", e.disk, &asked.Limits.Disk}} {
		if size.text == "" {
			continue
		}
		if *size.at, err = parseSize(size.text); err != nil {
			return asked, usage("--%s: %w", size.flag, err)
		}
	}
	return asked, nil
}

// showEnvironment prints the environment of a session. Old sessions have none recorded.
func showEnvironment(line func(name, format string, args ...any), s client.Session) {
	e := s.Environment
	if e.IsZero() {
		return
	}
	image := e.Image
	if image == dormouse.HostImage {
		image = "this machine's programs"
	}
	if s.Image != "" {
		image += " as " + s.Image
	}
	line("image", "%s", image)
	line("network", "%s", e.Network)
	if e.Network == dormouse.NetworkLimited {
		hosts := slices.Clone(e.Hosts)
		if e.PackageManagers {
			hosts = append(hosts, "where packages come from")
		}
		line("hosts", "%s", cmp.Or(strings.Join(hosts, ", "), "none"))
	}
	for manager, list := range e.Packages.All() {
		line(manager, "%s", strings.Join(list, ", "))
	}
	if e.Snapshots != "" {
		line("snapshots", "%s", e.Snapshots)
	}
	l := e.Limits
	line("limits", "%s, %s, %s", amount(l.CPUs, "processors"), byteAmount(l.Memory, "memory"), amount(float64(l.Pids), "processes"))
	line("", "%s, %s, %s", byteAmount(l.Disk, "disk"), amount(float64(l.Inodes), "inodes"), amount(float64(l.Files), "open files"))
}

func amount(n float64, of string) string {
	if n < 0 {
		return "any number of " + of
	}
	return fmt.Sprintf("%.12g %s", n, of)
}

func byteAmount(n int64, of string) string {
	if n < 0 {
		return "any " + of
	}
	return size(n) + " " + of
}
