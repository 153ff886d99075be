//go:build linux

package gvisor

import (
	"path/filepath"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/cgroup"
)

// Where things are inside a sandbox.
const (
	inside          = "/.dormouse"
	insideBin       = inside + "/bin"
	insideRun       = inside + "/run"   // only read
	insideState     = inside + "/state" // the runner's own, in the sandbox's memory
	insideSlot      = inside + "/slot"
	insideWorkspace = "/workspace"
	insideHome      = "/root"
)

// stateRoom bounds what a runner keeps of ops that are not forgotten yet. It is memory of
// the sandbox, and is part of its memory image.
const stateRoom = 256 << 20

// ociSpec is the OCI spec of the sandbox in a box, with a program as its runner. Those of
// equal specs differ only in their directories on the host, so that any can be restored
// from the memory image of any other.
func (d *Driver) ociSpec(b box, program string, m boxSpec) *specs.Spec {
	s := &specs.Spec{
		Version:  specs.Version,
		Hostname: "dormouse",
		Root:     &specs.Root{Path: m.Root},
		Process: &specs.Process{
			Args: []string{
				filepath.Join(insideBin, program),
				"-socket", insideRun + "/socket", "-bell", insideRun + "/bell", "-secret", insideRun + "/secret", "-dir", insideState,
				"-log", insideState + "/log", "-slot", insideSlot, "-workspace", insideWorkspace, "-pids", strconv.FormatInt(m.Limits.Pids, 10),
			},
			Cwd: "/",
			Env: slices.Concat(
				[]string{"PATH=" + searchPath, "LC_CTYPE=C.UTF-8"}, m.Env,
				[]string{"HOME=" + insideHome, "USER=root", "TERM=dumb"},
			),
			Capabilities: capabilities(),
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			bind(filepath.Dir(d.opts.Runner), insideBin, "ro"),
			bind(b.run(), insideRun, "ro"),
			{Destination: insideState, Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=700", "size=" + strconv.Itoa(stateRoom)}},
			// An overlay is mounted in the slot later, which gVisor must know: copy-up gives a
			// file that is open another inode.
			bind(b.slot(), insideSlot, "rw", "rslave", "overlayfs_stale_read"),
		},
		Linux: &specs.Linux{Resources: resources(m.Limits)},
	}
	if m.Network {
		s.Process.Args = append(s.Process.Args, "-outlet", insideRun+"/outlet")
		for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
			s.Process.Env = append(s.Process.Env, name+"=http://"+runner.DefaultEgressAddr)
		}
		for _, name := range []string{"no_proxy", "NO_PROXY"} {
			s.Process.Env = append(s.Process.Env, name+"=localhost,127.0.0.1,::1")
		}
	}
	d.addRoot(s, m)
	if n := uint64(max(m.Limits.Files, 0)); n > 0 {
		s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: n, Soft: n}}
	}
	for _, ns := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace} {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: ns})
	}
	return s
}

// addRoot mounts the root and the directories of the host, with the package layer over
// them if there is one.
func (d *Driver) addRoot(s *specs.Spec, m boxSpec) {
	l, err := d.packageLayer(m.PackageLayer)
	layered := err == nil // else there is none
	if layered {
		s.Root.Path = l.at(0)
	}
	for n, dir := range m.Host {
		switch {
		case m.build:
			s.Mounts = append(s.Mounts, bind(l.at(n+1), dir, "rw", "overlayfs_stale_read"))
		case layered:
			s.Mounts = append(s.Mounts, bind(l.at(n+1), dir, "ro"))
		default:
			s.Mounts = append(s.Mounts, bind(dir, dir, "ro"))
		}
	}
}

// resources are the limits that are shown inside: see Main. They limit nothing by
// themselves.
func resources(l dormouse.Limits) *specs.LinuxResources {
	r := new(specs.LinuxResources)
	if l.Memory > 0 {
		r.Memory = &specs.LinuxMemory{Limit: &l.Memory}
	}
	if l.CPUs > 0 {
		quota, period := int64(l.CPUs*cgroup.CPUPeriod), uint64(cgroup.CPUPeriod)
		r.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
	return r
}

func bind(from, to string, options ...string) specs.Mount {
	return specs.Mount{Destination: to, Type: "bind", Source: from, Options: append([]string{"rbind"}, options...)}
}

// capabilities are those of the runner. It mounts the workspace with CAP_SYS_ADMIN and
// passes that on to no process.
func capabilities() *specs.LinuxCapabilities {
	all := []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE",
		"CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_ADMIN",
	}
	return &specs.LinuxCapabilities{Bounding: all, Effective: all, Inheritable: all, Permitted: all}
}
