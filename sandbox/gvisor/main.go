//go:build linux

package gvisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/dormouse-run/dormouse/sandbox/gvisor/cgroup"
)

// Main is what this program does when gVisor has started it as a kernel or as a file
// server: it then does not return. A program that creates sandboxes must call it before
// anything else.
func Main() {
	// The kernel executes itself once more under the name /proc/self/exe.
	if name := os.Args[0]; !strings.HasPrefix(name, "runsc") && name != "/proc/self/exe" {
		return
	}
	closeInherited(os.Args)
	os.Args = withLimits(os.Args, runtime.NumCPU())
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "",
		new(cmd.Gofer):        "",
		new(sentrycmd.Umount): "",
	}, []subcommands.Command{})
}

// fewestCPUs is how many CPUs a sandbox sees at least. With one, some programs leave out
// locks that they need, since they do run on several.
const fewestCPUs = 2

// withLimits are the arguments of a kernel that shows its limits inside rather than this
// machine: many programs size themselves by that. gVisor itself knows only the limits of
// cgroups that it manages. Of two flags with one name the last counts; the name of the
// sandbox comes after all flags.
func withLimits(args []string, cpus int) []string {
	limits := limitsOf(args)
	if limits == nil {
		return args
	}
	var told []string
	if m := limits.Memory; m != nil && m.Limit != nil {
		// The size of a tmpfs follows from the memory of the machine.
		size := strconv.FormatInt(*m.Limit, 10)
		told = append(told, "--total-memory="+size, "--total-host-memory="+size)
	}
	if c := limits.CPU; c != nil && c.Quota != nil {
		n := int((*c.Quota + cgroup.CPUPeriod - 1) / cgroup.CPUPeriod)
		told = append(told, "--cpu-num="+strconv.Itoa(min(max(n, fewestCPUs), cpus)))
	}
	return slices.Insert(slices.Clone(args), len(args)-1, told...)
}

// limitsOf reads the limits of the kernel that args start, nil if they start none or it is
// in its chroot already.
func limitsOf(args []string) *specs.LinuxResources {
	if !slices.Contains(args, "boot") {
		return nil
	}
	for _, arg := range args {
		bundle, ok := strings.CutPrefix(arg, "--bundle=")
		if !ok {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(bundle, "config.json")) //nolint:gosec // the server that starts us names it
		if err != nil {
			return nil
		}
		var spec specs.Spec
		if json.Unmarshal(raw, &spec) != nil || spec.Linux == nil {
			return nil
		}
		return spec.Linux.Resources
	}
	return nil
}
