//go:build linux

package gvisor

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

const cgroupRoot = "/sys/fs/cgroup"

// cgroup is what the kernel of this machine holds a sandbox to. Its path is
// absolute: below that of the server it would end with the server's service.
type cgroup struct {
	unified bool
	divides bool   // it can be told on which processors to run
	path    string // below the root of each hierarchy
	// flat is the path where processors are shared. There is nothing between it and
	// the root: what sandboxes had in common, the busy ones would take from the rest.
	flat string
	// pin is the path of an empty cgroup of the second version that has the same
	// controllers for its own children, of which there are none. While it does, nobody
	// can take them from its siblings: at each reload systemd takes back those that
	// none of its units needs, and the limits would be gone without a word.
	pin string
}

func (d *Driver) cgroupOf(b box) cgroup {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return cgroup{
		unified: err == nil,
		divides: d.crowd.cpus.all != "",
		path:    filepath.Join("dormouse", d.opts.Instance, b.id),
		flat:    "dormouse-" + d.opts.Instance + "-" + b.id,
		pin:     "dormouse-" + d.opts.Instance,
	}
}

// dir is the directory of a controller.
func (c cgroup) dir(controller string) string {
	switch {
	case c.unified:
		return filepath.Join(cgroupRoot, c.flat)
	case controller == "cpu", controller == "cpuset":
		return filepath.Join(cgroupRoot, controller, c.flat)
	}
	return filepath.Join(cgroupRoot, controller, c.path)
}

func (c cgroup) dirs() []string {
	if c.unified {
		return []string{c.dir("")}
	}
	all := []string{c.dir("memory"), c.dir("cpu"), c.dir("pids")}
	if c.divides {
		all = append(all, c.dir("cpuset"))
	}
	return all
}

// cpuPeriod is the time, in microseconds, that a share of the processors is of.
const cpuPeriod = 100_000

// weight is how much a sandbox counts when all want the processors.
type weight struct{ shares, weight string } // the same in both versions of cgroups

// A sandbox weighs half as much as a process of this machine does, so that the
// server comes first. While nobody waits for it, it weighs a sixteenth of that:
// little enough that the others hardly notice it, and enough that it goes on
// whatever they do.
var (
	usual   = weight{"512", "50"}
	resting = weight{"32", "3"}
)

// setting is a file that says what a limit is.
type setting struct{ controller, file, value string }

// settings are in the order in which they must be made. A sandbox has more
// threads here than processes inside.
func (c cgroup) settings(l dormouse.Limits, p processors) []setting {
	memory := strconv.FormatInt(l.Memory, 10)
	quota := strconv.FormatInt(int64(l.CPUs*cpuPeriod), 10)
	threads := strconv.FormatInt(8*l.Pids+1024, 10)
	var all []setting
	if l.Memory > 0 && c.unified {
		// If it ends, it ends as a whole. What it holds must not be moved to the disk
		// when it is too much: it would be slow, and nobody would be told.
		all = append(all, setting{"memory", memoryMax, memory}, setting{"memory", "memory.oom.group", "1"})
		if c.has(memorySwap) {
			all = append(all, setting{"memory", memorySwap, "0"})
		}
	}
	if l.Memory > 0 && !c.unified {
		all = append(all, setting{"memory", memoryLimit, memory})
	}
	all = append(all, c.weighing(usual))
	all = append(all, c.chosen(p)...)
	if l.CPUs > 0 && c.unified {
		all = append(all, setting{"cpu", "cpu.max", quota + " " + strconv.Itoa(cpuPeriod)})
	}
	if l.CPUs > 0 && !c.unified {
		all = append(all, setting{"cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)}, setting{"cpu", "cpu.cfs_quota_us", quota})
	}
	if l.Pids > 0 {
		all = append(all, setting{"pids", "pids.max", threads})
	}
	return all
}

func (c cgroup) weighing(w weight) setting {
	if c.unified {
		return setting{"cpu", "cpu.weight", w.weight}
	}
	return setting{"cpu", "cpu.shares", w.shares}
}

// weigh changes how much the sandbox counts. One that has ended has no weight.
func (c cgroup) weigh(w weight) error {
	s := c.weighing(w)
	if err := c.set(s.controller, s.file, s.value); err != nil && !ended(err) {
		return fmt.Errorf("weigh the sandbox: %w", err)
	}
	return nil
}

// hold puts processes under limits, with all that they have started and will.
func (c cgroup) hold(l dormouse.Limits, p processors, pids []int) error {
	if err := c.make(); err != nil {
		return fmt.Errorf("limit the sandbox: %w", err)
	}
	for _, s := range c.settings(l, p) {
		if err := c.set(s.controller, s.file, s.value); err != nil {
			return fmt.Errorf("limit the sandbox: %w", err)
		}
	}
	held := make(map[int]bool)
	for fresh := true; fresh; { // what was started by one that was not held yet is found next time
		fresh = false
		found, err := proctree.Find(func(p proctree.Process) bool { return slices.Contains(pids, p.PID) })
		if err != nil {
			return fmt.Errorf("limit the sandbox: %w", err)
		}
		for _, p := range found {
			if held[p.PID] {
				continue
			}
			held[p.PID], fresh = true, true
			if err := c.take(p.PID); err != nil {
				return fmt.Errorf("limit the sandbox: %w", err)
			}
		}
	}
	return nil
}

// has reports whether this machine has a file of the second version.
func (c cgroup) has(file string) bool {
	_, err := os.Stat(filepath.Join(c.dir(""), file)) //nolint:gosec // of a box, whose name was looked at
	return err == nil
}

// kill ends whatever is in it. Where the kernel of this machine does not do that at
// once, what is started meanwhile is missed.
func (c cgroup) kill() error {
	const file = "cgroup.kill"
	if c.unified && c.has(file) {
		if err := c.set("", file, "1"); err != nil && !ended(err) {
			return fmt.Errorf("end all of the sandbox: %w", err)
		}
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(c.dir("pids"), "cgroup.procs")) //nolint:gosec // of a box, whose name was looked at
	if err != nil && !ended(err) {
		return fmt.Errorf("end all of the sandbox: %w", err)
	}
	for word := range strings.FieldsSeq(string(raw)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 { // 0 is somebody of another namespace
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return nil
}

// take puts one process under the limits. One that has ended needs none.
func (c cgroup) take(pid int) error {
	for _, dir := range c.dirs() {
		err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

func (c cgroup) set(controller, file, value string) error {
	return os.WriteFile(filepath.Join(c.dir(controller), file), []byte(value), 0) //nolint:gosec // of a box, whose name was looked at
}

// read returns the number behind a name in a file of its memory, or the only one.
func (c cgroup) read(file, name string) (int64, error) {
	raw, err := os.ReadFile(filepath.Join(c.dir("memory"), file))
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

func (c cgroup) make() error {
	for _, dir := range c.dirs() {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as they are everywhere
			return err
		}
	}
	if !c.unified {
		return nil
	}
	wanted := "+memory +cpu +pids"
	if c.divides {
		wanted += " +cpuset"
	}
	for _, dir := range []string{cgroupRoot, filepath.Join(cgroupRoot, c.pin)} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as they are everywhere
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(wanted), 0); err != nil {
			return err
		}
	}
	return nil
}

// forgetCgroups removes the directories that the sandboxes of this instance were
// in, if they are empty.
func (d *Driver) forgetCgroups() {
	c := d.cgroupOf(box{id: "none"})
	if c.unified {
		_ = os.Remove(filepath.Join(cgroupRoot, c.pin))
		return
	}
	for _, controller := range []string{"memory", "pids"} {
		_ = os.Remove(filepath.Dir(c.dir(controller)))
	}
}

// remove removes the directories of a sandbox that has ended.
func (c cgroup) remove() error {
	_, err := os.Stat(c.dir("cpuset")) //nolint:gosec // of a box, whose name was looked at
	c.divides = err == nil             // whether or not this server could make it
	for _, dir := range c.dirs() {
		err := os.Remove(dir) //nolint:gosec // of a box, whose name was looked at
		for range 1000 {      // the last process may still be on its way out
			if !errors.Is(err, unix.EBUSY) {
				break
			}
			unix.Nanosleep(&unix.Timespec{Nsec: 2_000_000}, nil) //nolint:errcheck // it only waits
			err = os.Remove(dir)                                 //nolint:gosec // the same
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the limits of the sandbox: %w", err)
		}
	}
	return nil
}

// ended reports whether an error only means that a cgroup is no more.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
