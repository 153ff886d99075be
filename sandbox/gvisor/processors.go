//go:build linux

package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpusetCPUs is the file that says on which processors a sandbox runs.
const cpusetCPUs = "cpuset.cpus"

// processors are those that this server may use, those of them for sandboxes that
// nobody waits for, none if they are too few to share, and the memory beside them.
// There are none at all if this machine does not let them be chosen.
type processors struct{ all, rest, mems string }

// divide finds the processors, and whether sandboxes can be told on which to run.
func (d *Driver) divide() {
	p, err := ours()
	d.crowd = crowd{cpus: p, log: d.log}
	if err == nil {
		err = d.tryCPUs(p)
	}
	if err != nil {
		d.log.Warn("busy sandboxes may slow others down: their processors cannot be chosen", "error", err)
		d.crowd.cpus = processors{}
	}
}

// tryCPUs does to nobody what is done to sandboxes. What servers before, which were
// killed meanwhile, left of that is removed.
func (d *Driver) tryCPUs(p processors) error {
	const nobody = "try-"
	try, tries := d.cgroupOf(box{id: nobody + strconv.Itoa(os.Getpid())}), d.cgroupOf(box{id: nobody + "*"})
	left, err := filepath.Glob(tries.dir("cpuset"))
	for _, dir := range left {
		_ = os.Remove(dir) // it is empty, or stays
	}
	if err == nil && try.unified {
		err = try.make()
	} else if err == nil {
		err = os.Mkdir(try.dir("cpuset"), 0o755) //nolint:gosec // as they are everywhere
	}
	for _, s := range try.chosen(p) {
		if err == nil {
			err = try.set(s.controller, s.file, s.value)
		}
	}
	if err == nil {
		err = try.runOn(p.all)
	}
	return errors.Join(err, try.remove())
}

// ours are the processors that this server may use.
func ours() (processors, error) {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return processors{}, err
	}
	var all []string
	for n := 0; len(all) < mine.Count(); n++ {
		if mine.IsSet(n) {
			all = append(all, strconv.Itoa(n))
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return processors{}, err
	}
	p := processors{all: strings.Join(all, ","), mems: "0"}
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			p.mems = strings.TrimSpace(list)
		}
	}
	if len(all) > 1 {
		kept := max(1, len(all)/4)
		p.rest = strings.Join(all[kept:], ",")
	}
	return p, nil
}

// chosen are where a sandbox runs at first. In the first version there must be
// something before anything is in it.
func (c cgroup) chosen(p processors) []setting {
	if !c.divides || c.unified {
		return nil
	}
	return []setting{{"cpuset", "cpuset.mems", p.mems}, {"cpuset", cpusetCPUs, p.all}}
}

// runOn has a sandbox run on some processors only, if they can be chosen.
func (c cgroup) runOn(list string) error {
	if !c.divides {
		return nil
	}
	if err := c.set("cpuset", cpusetCPUs, list); err != nil {
		return fmt.Errorf("choose the processors of a sandbox: %w", err)
	}
	return nil
}
