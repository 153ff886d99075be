//go:build linux

package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

var _ sandbox.EnvironmentResolver = (*Driver)(nil)

// boxSpec is the complete spec of a sandbox. One that is restored from a memory image has
// the spec that the image was made with, whatever this server would choose today.
type boxSpec struct {
	Root    string   `json:"root"`
	Host    []string `json:"host,omitempty"`  // directories of the host that are bound in, read-only
	Image   string   `json:"image,omitempty"` // the digest of the image in Root, if it is of one
	Env     []string `json:"env,omitempty"`
	Network bool     `json:"network,omitempty"`
	// Limited is where the network leads, nil if everywhere.
	Limited *limited        `json:"limited,omitempty"`
	Limits  dormouse.Limits `json:"limits,omitzero"` // zero is no limit
	// PackageLayer has the packages of its environment, and Missing says which are not
	// installed, and why.
	PackageLayer string `json:"stock,omitempty"`
	Missing      string `json:"missing,omitempty"`
	build        bool   // packages are installed in it
}

// limited is where a limited network leads.
type limited struct {
	Hosts           []string `json:"hosts,omitempty"`
	PackageManagers bool     `json:"package_managers,omitempty"`
}

// equivalent reports whether two sandboxes are the same from within. Where the network
// leads is known only outside.
func (m boxSpec) equivalent(other boxSpec) bool {
	m.Limited, other.Limited = nil, nil
	return reflect.DeepEqual(m, other)
}

// egressPolicy is what egress must know of a sandbox.
func (m boxSpec) egressPolicy(id dormouse.SessionID) EgressPolicy {
	o := EgressPolicy{Session: id, Network: dormouse.NetworkOff}
	switch {
	case m.Network && m.Limited != nil:
		o.Network, o.Hosts, o.PackageManagers = dormouse.NetworkLimited, m.Limited.Hosts, m.Limited.PackageManagers
	case m.Network:
		o.Network = dormouse.NetworkOn
	}
	return o
}

// ResolveEnvironment completes an environment with the defaults of this driver, and
// refuses one that sessions may not have.
func (d *Driver) ResolveEnvironment(e dormouse.Environment) (dormouse.Environment, error) {
	usual := cmp.Or(d.opts.Image, dormouse.HostImage)
	switch {
	case e.Image == "" || e.Image == usual:
		e.Image = usual
	case d.opts.Allow == nil:
		return e, fmt.Errorf("image %q: sessions of this server cannot choose one: %w", e.Image, dormouse.ErrInvalid)
	default:
		if err := d.opts.Allow(e.Image); err != nil {
			return e, fmt.Errorf("image %q: %w: %w", e.Image, err, dormouse.ErrInvalid)
		}
	}
	switch {
	case e.Network == "" && d.defaults.Network:
		e.Network = dormouse.NetworkOn
	case e.Network == "":
		e.Network = dormouse.NetworkOff
	case e.Network != dormouse.NetworkOff && !d.defaults.Network:
		return e, fmt.Errorf("network is %s; on this server it is off for every sandbox: %w", e.Network, dormouse.ErrInvalid)
	}
	if err := e.Validate(); err != nil { // packages need the network that was resolved above
		return e, err
	}
	if err := e.Limits.Within(d.opts.Limits); err != nil {
		return e, err
	}
	if err := d.checkDisk(e.Limits); err != nil {
		return e, err
	}
	e.Limits = e.Limits.Or(limitsAsRecorded(d.opts.Limits))
	return e, nil
}

// checkDisk refuses limits on files where they cannot be enforced.
func (d *Driver) checkDisk(asked dormouse.Limits) error {
	if asked.Disk == 0 && asked.Inodes == 0 {
		return nil
	}
	if err := volume.Supported(); err != nil {
		return fmt.Errorf("limits.disk and limits.inodes: %w: %w", err, dormouse.ErrInvalid)
	}
	if asked.Disk == 0 && d.opts.Limits.Disk == 0 {
		return fmt.Errorf("limits.inodes needs limits.disk on this server, which sets none itself: %w", dormouse.ErrInvalid)
	}
	return nil
}

// limitsAsRecorded writes limits as an environment does, in which zero is open.
func limitsAsRecorded(l dormouse.Limits) dormouse.Limits {
	return l.Or(dormouse.Limits{
		CPUs: dormouse.Unlimited, Memory: dormouse.Unlimited, Pids: dormouse.Unlimited,
		Disk: dormouse.Unlimited, Inodes: dormouse.Unlimited, Files: dormouse.Unlimited,
	})
}

// limitsOfRecord is the way back: zero is no limit.
func limitsOfRecord(l dormouse.Limits) dormouse.Limits {
	l.CPUs = max(l.CPUs, 0)
	for _, at := range []*int64{&l.Memory, &l.Pids, &l.Disk, &l.Inodes, &l.Files} {
		*at = max(*at, 0)
	}
	return l
}

// resolveSpec is the spec of an environment. It fetches the image if that is not there.
// The digest is that of the session's first sandbox, empty for that one.
func (d *Driver) resolveSpec(ctx context.Context, e dormouse.Environment, digest string) (boxSpec, error) {
	m := d.defaults
	if e.Network != "" {
		m.Network = e.Network == dormouse.NetworkOn || e.Network == dormouse.NetworkLimited
	}
	if e.Network == dormouse.NetworkLimited {
		m.Limited = &limited{Hosts: e.Hosts, PackageManagers: e.PackageManagers}
	}
	m.Limits = limitsOfRecord(e.Limits.Or(limitsAsRecorded(d.opts.Limits)))
	usual := cmp.Or(d.opts.Image, dormouse.HostImage)
	switch {
	case e.Image == "", e.Image == usual && (digest == "" || digest == d.defaults.Image):
		return m, nil
	case e.Image == dormouse.HostImage:
		host, err := d.host()
		m.Root, m.Host, m.Image, m.Env = host.Root, host.Host, "", host.Env
		return m, err
	case d.opts.Fetch == nil:
		return m, errors.New("this server fetches no images")
	}
	im, err := d.opts.Fetch(ctx, e.Image, digest)
	m.Root, m.Host, m.Image, m.Env = im.Dir, nil, im.Digest, im.Env
	return m, err
}

func (v sessionDir) imageNote() string { return filepath.Join(v.Dir, "root") }

// noteImage notes the image of a session's sandboxes, for as long as the session exists.
func (v sessionDir) noteImage(digest string) error {
	if digest == "" {
		return nil
	}
	if has, err := os.ReadFile(v.imageNote()); err == nil && string(has) == digest {
		return nil
	}
	if err := atomicfile.Write(v.imageNote(), []byte(digest), 0o600); err != nil {
		return fmt.Errorf("note the image of the session: %w", err)
	}
	return nil
}

// Images lists the digests of the images that sessions use or may use again.
func (d *Driver) Images() (map[string]bool, error) {
	notes, err := filepath.Glob(d.path(sessionsDir) + "/*/root")
	if err != nil {
		return nil, err
	}
	used := map[string]bool{d.defaults.Image: true}
	for _, name := range notes {
		digest, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look which images are in use: %w", err)
		}
		used[string(digest)] = true
	}
	return used, nil
}

// defaultSpec is the spec of an empty environment.
func (d *Driver) defaultSpec() (boxSpec, error) {
	m := boxSpec{Root: d.opts.Root, Image: d.opts.Digest, Env: d.opts.Env}
	if m.Root == "" {
		var err error
		if m, err = d.host(); err != nil {
			return m, err
		}
	}
	m.Network, m.Limits = d.opts.ServeEgress != nil, d.opts.Limits
	return m, nil
}

// hostSpec creates a root file system of this machine's own programs.
func (d *Driver) hostSpec() (boxSpec, error) {
	path := hostPath(d.opts.SearchPath)
	root, err := makeRoot(d.path(rootsDir), path)
	return boxSpec{Root: root.dir, Host: root.host, Env: []string{"PATH=" + path}}, err
}

// hostPath is the search path in sandboxes that have this machine's programs: the default
// one, and directories below /usr of this machine's own.
func hostPath(machine string) string {
	dirs := strings.Split(searchPath, ":")
	for dir := range strings.SplitSeq(machine, ":") {
		if !strings.HasPrefix(dir, "/usr/") || dir != filepath.Clean(dir) || slices.Contains(dirs, dir) {
			continue
		}
		if at, err := os.Stat(dir); err == nil && at.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}
