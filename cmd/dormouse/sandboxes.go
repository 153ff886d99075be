//go:build !windows

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/packages"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
	"github.com/dormouse-run/dormouse/sandbox/local"
)

// driver is what a server needs of its sandboxes.
type driver interface {
	sandbox.Driver
	// Sweep stops the sandboxes that no session owns.
	Sweep(ctx context.Context, owned func(dormouse.SessionID) sandbox.Ownership) error
}

// The kinds of sandbox.
const (
	sandboxGVisor = "gvisor"
	sandboxLocal  = "local"
)

// openSandboxes returns the driver. It is the only place that names one.
func openSandboxes(ctx context.Context, c config, around surroundings, log *slog.Logger) (driver, error) {
	data, err := filepath.Abs(c.Data)
	if err != nil {
		return nil, err
	}
	kind, err := sandboxKind(data, c.Sandbox)
	if err != nil {
		return nil, err
	}
	runner := c.Runner
	if runner == "" {
		if runner, err = placeRunner(data); err != nil {
			return nil, err
		}
	}
	if runner, err = filepath.Abs(runner); err != nil {
		return nil, err
	}
	instance, err := instanceOf(data)
	if err != nil {
		return nil, err
	}
	var d driver
	switch dir := filepath.Join(data, sandboxDir); kind {
	case sandboxGVisor:
		d, err = openGVisor(ctx, c, around, data, gvisor.Options{
			Dir: filepath.Join(dir, sandboxGVisor), Instance: instance, Runner: runner, Limits: c.Limits.parsed, Spares: c.Spares, Logger: log,
		})
	default:
		if runtime.GOOS != "linux" {
			log.WarnContext(ctx, "dormouse has never been run on this system, and not all of its promises can hold here: see \"Other systems\" in docs/running.md", "system", runtime.GOOS)
		}
		d, err = local.New(local.Options{Dir: dir, Instance: instance, Runner: runner, Logger: log})
	}
	if err != nil {
		return nil, fmt.Errorf("open sandboxes: %w", err)
	}
	return d, nil
}

// openGVisor adds what sandboxes start from and their way out.
func openGVisor(ctx context.Context, c config, around surroundings, data string, o gvisor.Options) (imaged, error) {
	sources := packageSources(ctx, c, around, o.Logger)
	way := wayOut(c, sources, o.Logger)
	if c.Network {
		o.ServeEgress = func(ctx context.Context, from gvisor.EgressPolicy, l net.Listener) error {
			who, err := outgoing(from)
			if err != nil {
				return err
			}
			return way.Serve(ctx, l, who)
		}
	}
	o.PackageEnv = func() []string { return sources().Env }
	images, err := openImages(data, c, way, o.Logger)
	if err != nil {
		return imaged{}, err
	}
	if o.Image = c.Image; o.Image != "" {
		image, err := images.fetch(ctx, o.Image, "")
		if err != nil {
			return imaged{}, fmt.Errorf("--image %s: %w", o.Image, err)
		}
		o.Root, o.Digest, o.Env = image.Dir, image.Digest, image.Env
	}
	o.Fetch, o.Allow, o.SearchPath = images.fetch, images.allow.Check, around.path
	d, err := gvisor.New(o)
	return imaged{d, images}, err
}

// imaged is a driver whose sandboxes start from images.
type imaged struct {
	*gvisor.Driver
	images *images
}

// CollectImages removes the images and packages that no session has sandboxes of.
func (d imaged) CollectImages(ctx context.Context) error {
	used, err := d.Images()
	if err != nil {
		return err
	}
	return errors.Join(d.CollectPackages(ctx), d.images.trusted.Collect(ctx, func(digest string) bool { return used[digest] }))
}

// packageSources says where packages come from. The package managers are asked while the
// server starts; a caller that is earlier waits for their answers.
func packageSources(ctx context.Context, c config, around surroundings, log *slog.Logger) func() packages.Sources {
	look := sync.OnceValue(func() packages.Sources {
		s := packages.Look(ctx, around.packages, cmp.Or(log, slog.New(slog.DiscardHandler)))
		if len(c.PackageHosts) > 0 {
			s.Hosts, _ = parseHosts(c.PackageHosts) // checked with the rest of the configuration
		}
		return s
	})
	if c.Network {
		go look()
	}
	return look
}

func parseHosts(names []string) ([]dormouse.Host, error) {
	hosts := make([]dormouse.Host, 0, len(names))
	for _, name := range names {
		h, err := dormouse.ParseHost(name)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// outgoing tells the proxy whose traffic it is and where it may go.
func outgoing(from gvisor.EgressPolicy) (egress.Session, error) {
	who := egress.Session{ID: from.Session}
	switch from.Network { //nolint:exhaustive // any other is off
	case dormouse.NetworkOn:
		who.Policy.Network = egress.On
	case dormouse.NetworkLimited:
		hosts, err := parseHosts(from.Hosts)
		if err != nil {
			return who, err
		}
		who.Policy = egress.Policy{Network: egress.Limited, Hosts: hosts, Packages: from.PackageManagers}
	}
	return who, nil
}

// wayOut makes the egress proxy of sandboxes.
func wayOut(c config, sources func() packages.Sources, log *slog.Logger) *egress.Proxy {
	allow, _ := egress.ParseAllow(c.EgressAllow) // checked with the rest of the configuration
	o := egress.Options{Allow: allow, PackageHosts: func() []dormouse.Host { return sources().Hosts }, Logger: log}
	o.Listeners, o.Names = c.ownAddresses()
	return egress.New(o)
}

// ownAddresses are the addresses of this server: those it listens on, and the one it
// advertises to others.
func (c *config) ownAddresses() (at []netip.AddrPort, names []string) {
	if a, ok := c.listening.(*net.TCPAddr); ok {
		at = append(at, a.AddrPort())
	}
	if a, err := netip.ParseAddrPort(c.Advertise); err == nil {
		at = append(at, a)
	} else if c.Advertise != "" {
		names = append(names, c.Advertise)
	}
	return at, names
}

const sandboxDir = "sandbox"

// sandboxKind is the kind that a data directory has, or is given now. Files of
// one kind are not found by the other.
func sandboxKind(data, wanted string) (string, error) {
	has, err := kindOf(data)
	switch {
	case err != nil:
		return "", err
	case has != "" && wanted != "" && has != wanted:
		return "", usage("--sandbox is %s, but the workspaces in %s are of %s sandboxes; leave the flag out, or choose another --data", wanted, data, has)
	case has != "":
		return has, nil
	}
	kind := cmp.Or(wanted, sandboxGVisor)
	if err := os.MkdirAll(filepath.Join(data, sandboxDir), 0o700); err != nil {
		return "", fmt.Errorf("note the kind of sandboxes: %w", err)
	}
	return kind, atomicfile.Write(filepath.Join(data, sandboxDir, kindFile), []byte(kind+"\n"), 0o600)
}

const kindFile = "kind"

// kindOf is the kind of the sandboxes in a data directory, empty if it has none.
func kindOf(data string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(data, sandboxDir, kindFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, old := os.Stat(filepath.Join(data, sandboxDir, "workspaces")); old == nil {
			return sandboxLocal, nil // from before there were others
		}
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for sandboxes: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// instanceOf names the instance that uses a directory. A copy of it elsewhere is
// another one, and leaves the sandboxes of the original alone.
func instanceOf(data string) (string, error) {
	path, err := filepath.Abs(data)
	if err != nil {
		return "", err
	}
	const enough = 16
	return string(dormouse.DigestOf([]byte(path)))[len("sha256:"):][:enough], nil
}

// sweep stops what servers before us left running and no session owns.
func (s *server) sweep(ctx context.Context) {
	err := s.sessions.Under(ctx, func(ctx context.Context) error {
		return s.driver.Sweep(ctx, func(id dormouse.SessionID) sandbox.Ownership { return s.sessions.Owned(ctx, id) })
	})
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "stray sandboxes not swept", "error", err)
	}
}
