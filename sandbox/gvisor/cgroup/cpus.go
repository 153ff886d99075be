//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpusetCPUs is the file that says on which CPUs a sandbox runs.
const cpusetCPUs = "cpuset.cpus"

// cpus are lists as the cpuset controller writes them: all CPUs that this server may use,
// those of them for sandboxes without a waiting client, empty if there are too few to
// divide, and the memory nodes. All are empty if this machine does not let sandboxes be
// confined.
type cpus struct{ all, background, mems string }

// allowedCPUs are those that this server may use.
func allowedCPUs() (cpus, error) {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return cpus{}, err
	}
	var all []string
	for n := 0; len(all) < mine.Count(); n++ {
		if mine.IsSet(n) {
			all = append(all, strconv.Itoa(n))
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return cpus{}, err
	}
	c := cpus{all: strings.Join(all, ","), mems: "0"}
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			c.mems = strings.TrimSpace(list)
		}
	}
	if len(all) > 1 {
		reserved := max(1, len(all)/4)
		c.background = strings.Join(all[reserved:], ",")
	}
	return c, nil
}

// probeCPUs tries with an empty group whether sandboxes can be confined to CPUs. It also
// removes the empty groups of servers that were killed while they tried.
func probeCPUs(instance string, c cpus) error {
	const prefix = "try-"
	probe, probes := newGroup(instance, prefix+strconv.Itoa(os.Getpid()), c), newGroup(instance, prefix+"*", c)
	left, err := filepath.Glob(probes.dir("cpuset"))
	for _, dir := range left {
		_ = os.Remove(dir) // it is empty, or stays
	}
	if err == nil && probe.unified {
		err = probe.create()
	} else if err == nil {
		err = os.Mkdir(probe.dir("cpuset"), 0o755) //nolint:gosec // the mode of every cgroup
	}
	for _, s := range probe.cpuSettings() {
		if err == nil {
			err = probe.set(s.controller, s.file, s.value)
		}
	}
	if err == nil {
		err = probe.setCPUs(c.all)
	}
	return errors.Join(err, probe.Remove())
}

// cpuSettings are where a sandbox runs at first. Version 1 needs both before a process can
// be in the group.
func (g Group) cpuSettings() []setting {
	if !g.cpuset || g.unified {
		return nil
	}
	return []setting{{"cpuset", "cpuset.mems", g.cpus.mems}, {"cpuset", cpusetCPUs, g.cpus.all}}
}

// setCPUs confines a sandbox to some CPUs, if this machine can.
func (g Group) setCPUs(list string) error {
	if !g.cpuset {
		return nil
	}
	if err := g.set("cpuset", cpusetCPUs, list); err != nil {
		return fmt.Errorf("set the CPUs of the sandbox: %w", err)
	}
	return nil
}

// Release has a sandbox that a server left behind run on all CPUs, with background weight.
func (g Group) Release() error {
	err := g.SetWeight(Background)
	if moved := g.setCPUs(g.cpus.all); moved != nil && !gone(moved) {
		err = errors.Join(err, moved)
	}
	return err
}
