//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

const root = "/sys/fs/cgroup"

// Group is the control group of one sandbox, in every hierarchy there is. Its path is
// absolute: below the server's own group it would end with the server's service.
type Group struct {
	unified bool // version 2
	cpuset  bool // the sandbox can be confined to some CPUs
	cpus    cpus
	path    string // below the root of each hierarchy
	// flat is the path in the hierarchies that schedule CPUs. Nothing is between it and
	// the root: sandboxes with a common parent would share the parent's weight, and the
	// busy ones would take it from the rest.
	flat string
	// pin is the path of an empty version 2 group that enables the same controllers for
	// children it does not have. While it does, they cannot be disabled for its siblings:
	// at each reload systemd disables those that none of its units needs, and the limits
	// would be gone silently.
	pin string
}

// newGroup names the group of a sandbox without creating it.
func newGroup(instance, id string, c cpus) Group {
	_, err := os.Stat(filepath.Join(root, "cgroup.controllers"))
	return Group{
		unified: err == nil,
		cpuset:  c.all != "",
		cpus:    c,
		path:    filepath.Join("dormouse", instance, id),
		flat:    "dormouse-" + instance + "-" + id,
		pin:     "dormouse-" + instance,
	}
}

// dir is the directory of a controller.
func (g Group) dir(controller string) string {
	switch {
	case g.unified:
		return filepath.Join(root, g.flat)
	case controller == "cpu", controller == "cpuset":
		return filepath.Join(root, controller, g.flat)
	}
	return filepath.Join(root, controller, g.path)
}

func (g Group) dirs() []string {
	if g.unified {
		return []string{g.dir("")}
	}
	all := []string{g.dir("memory"), g.dir("cpu"), g.dir("pids")}
	if g.cpuset {
		all = append(all, g.dir("cpuset"))
	}
	return all
}

// CPUPeriod is the period of a CPU quota in microseconds.
const CPUPeriod = 100_000

// Weight is a share of CPU time relative to others that want it, in the units of both
// versions of cgroups.
type Weight struct{ shares, weight string }

// A sandbox has half the weight of a process of this machine, so that the server comes
// first. While no client waits for it, it has a sixteenth of that: little enough that the
// others hardly notice it, and enough that it makes progress whatever they do.
var (
	Foreground = Weight{"512", "50"}
	Background = Weight{"32", "3"}
)

// setting is a file of a controller, and what to write to it.
type setting struct{ controller, file, value string }

// settings are in the order in which they must be written. A sandbox has more threads
// here than processes inside.
func (g Group) settings(l dormouse.Limits) []setting {
	memory := strconv.FormatInt(l.Memory, 10)
	quota := strconv.FormatInt(int64(l.CPUs*CPUPeriod), 10)
	threads := strconv.FormatInt(8*l.Pids+1024, 10)
	var all []setting
	if l.Memory > 0 && g.unified {
		// If the kernel kills, it kills the whole sandbox. Memory must not be swapped out
		// above the limit: the sandbox would be slow, without any report.
		all = append(all, setting{"memory", memoryMax, memory}, setting{"memory", "memory.oom.group", "1"})
		if g.has(memorySwap) {
			all = append(all, setting{"memory", memorySwap, "0"})
		}
	}
	if l.Memory > 0 && !g.unified {
		all = append(all, setting{"memory", memoryLimit, memory})
	}
	all = append(all, g.weightSetting(Foreground))
	all = append(all, g.cpuSettings()...)
	if l.CPUs > 0 && g.unified {
		all = append(all, setting{"cpu", "cpu.max", quota + " " + strconv.Itoa(CPUPeriod)})
	}
	if l.CPUs > 0 && !g.unified {
		all = append(all, setting{"cpu", "cpu.cfs_period_us", strconv.Itoa(CPUPeriod)}, setting{"cpu", "cpu.cfs_quota_us", quota})
	}
	if l.Pids > 0 {
		all = append(all, setting{"pids", "pids.max", threads})
	}
	return all
}

func (g Group) weightSetting(w Weight) setting {
	if g.unified {
		return setting{"cpu", "cpu.weight", w.weight}
	}
	return setting{"cpu", "cpu.shares", w.shares}
}

// SetWeight changes the CPU weight of the sandbox. It does nothing if the sandbox has
// ended.
func (g Group) SetWeight(w Weight) error {
	s := g.weightSetting(w)
	if err := g.set(s.controller, s.file, s.value); err != nil && !gone(err) {
		return fmt.Errorf("set the CPU weight of the sandbox: %w", err)
	}
	return nil
}

// Apply creates the group with these limits and moves processes into it, with all that
// they have started.
func (g Group) Apply(l dormouse.Limits, pids []int) error {
	if err := g.create(); err != nil {
		return fmt.Errorf("limit the sandbox: %w", err)
	}
	for _, s := range g.settings(l) {
		if err := g.set(s.controller, s.file, s.value); err != nil {
			return fmt.Errorf("limit the sandbox: %w", err)
		}
	}
	moved := make(map[int]bool)
	for fresh := true; fresh; { // what a process started before it was moved is found next time
		fresh = false
		found, err := proctree.Find(func(p proctree.Process) bool { return slices.Contains(pids, p.PID) })
		if err != nil {
			return fmt.Errorf("limit the sandbox: %w", err)
		}
		for _, p := range found {
			if moved[p.PID] {
				continue
			}
			moved[p.PID], fresh = true, true
			if err := g.add(p.PID); err != nil {
				return fmt.Errorf("limit the sandbox: %w", err)
			}
		}
	}
	return nil
}

// has reports whether this machine has a file of version 2.
func (g Group) has(file string) bool {
	_, err := os.Stat(filepath.Join(g.dir(""), file))
	return err == nil
}

// Kill kills every process in the group. Where the kernel has no file for that, a process
// that is started meanwhile is missed.
func (g Group) Kill() error {
	const file = "cgroup.kill"
	if g.unified && g.has(file) {
		if err := g.set("", file, "1"); err != nil && !gone(err) {
			return fmt.Errorf("kill the processes of the sandbox: %w", err)
		}
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(g.dir("pids"), "cgroup.procs"))
	if err != nil && !gone(err) {
		return fmt.Errorf("kill the processes of the sandbox: %w", err)
	}
	for word := range strings.FieldsSeq(string(raw)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 { // 0 is a process of another namespace
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return nil
}

// add moves one process into the group. One that has ended is no error.
func (g Group) add(pid int) error {
	for _, dir := range g.dirs() {
		err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

func (g Group) set(controller, file, value string) error {
	return os.WriteFile(filepath.Join(g.dir(controller), file), []byte(value), 0)
}

// read returns the number after a name in a file of the memory controller, or the only
// number if the name is empty.
func (g Group) read(file, name string) (int64, error) {
	raw, err := os.ReadFile(filepath.Join(g.dir("memory"), file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok && (name == "" || strings.HasPrefix(value, " ")) {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s says no %s", file, name)
}

func (g Group) create() error {
	for _, dir := range g.dirs() {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the mode of every cgroup
			return err
		}
	}
	if !g.unified {
		return nil
	}
	controllers := "+memory +cpu +pids"
	if g.cpuset {
		controllers += " +cpuset"
	}
	for _, dir := range []string{root, filepath.Join(root, g.pin)} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the mode of every cgroup
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controllers), 0); err != nil {
			return err
		}
	}
	return nil
}

// removeParents removes the groups that the groups of an instance share, if they are
// empty.
func (g Group) removeParents() {
	if g.unified {
		_ = os.Remove(filepath.Join(root, g.pin))
		return
	}
	for _, controller := range []string{"memory", "pids"} {
		_ = os.Remove(filepath.Dir(g.dir(controller)))
	}
}

// Remove removes the group of a sandbox that has ended.
func (g Group) Remove() error {
	_, err := os.Stat(g.dir("cpuset"))
	g.cpuset = err == nil // whether or not this server could create it
	for _, dir := range g.dirs() {
		err := os.Remove(dir)
		for range 1000 { // the last process may still be exiting
			if !errors.Is(err, unix.EBUSY) {
				break
			}
			unix.Nanosleep(&unix.Timespec{Nsec: 2_000_000}, nil) //nolint:errcheck // it only waits
			err = os.Remove(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the limits of the sandbox: %w", err)
		}
	}
	return nil
}

// gone reports whether an error only means that a group does not exist any more.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
