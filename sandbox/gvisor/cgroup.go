//go:build linux

package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroup is what the kernel of this machine holds a sandbox to. Its path is
// absolute: below that of the server it would end with the server's service.
type cgroup struct {
	unified bool
	path    string // below the root of each hierarchy
}

func (d *Driver) cgroupOf(b box) cgroup {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return cgroup{unified: err == nil, path: filepath.Join("dormouse", d.opts.Instance, b.id)}
}

// dir is the directory of a controller.
func (c cgroup) dir(controller string) string {
	if c.unified {
		return filepath.Join(cgroupRoot, c.path)
	}
	return filepath.Join(cgroupRoot, controller, c.path)
}

func (c cgroup) dirs() []string {
	if c.unified {
		return []string{c.dir("")}
	}
	return []string{c.dir("memory"), c.dir("cpu"), c.dir("pids")}
}

// settings are the files that say what a limit is. A sandbox has more threads
// here than processes inside.
func (c cgroup) settings(l Limits) map[string]string {
	const period = 100_000
	threads := strconv.FormatInt(8*l.Pids+1024, 10)
	quota := strconv.FormatInt(int64(l.CPUs*period), 10)
	set := make(map[string]string)
	switch {
	case c.unified:
		if l.Memory > 0 {
			set[filepath.Join(c.dir(""), "memory.max")] = strconv.FormatInt(l.Memory, 10)
		}
		if l.CPUs > 0 {
			set[filepath.Join(c.dir(""), "cpu.max")] = quota + " " + strconv.Itoa(period)
		}
		if l.Pids > 0 {
			set[filepath.Join(c.dir(""), "pids.max")] = threads
		}
	default:
		if l.Memory > 0 {
			set[filepath.Join(c.dir("memory"), "memory.limit_in_bytes")] = strconv.FormatInt(l.Memory, 10)
		}
		if l.CPUs > 0 {
			set[filepath.Join(c.dir("cpu"), "cpu.cfs_quota_us")] = quota
		}
		if l.Pids > 0 {
			set[filepath.Join(c.dir("pids"), "pids.max")] = threads
		}
	}
	return set
}

// hold puts processes under limits, with all that they will start.
func (c cgroup) hold(l Limits, pids []int) error {
	if err := c.make(); err != nil {
		return fmt.Errorf("limit the sandbox: %w", err)
	}
	for file, value := range c.settings(l) {
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("limit the sandbox: %w", err)
		}
	}
	for _, dir := range c.dirs() {
		for _, pid := range pids {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
				return fmt.Errorf("limit the sandbox: %w", err)
			}
		}
	}
	return nil
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
	// Each directory on the way hands its controllers down.
	for at := cgroupRoot; at != c.dir(""); {
		if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+memory +cpu +pids"), 0); err != nil {
			return err
		}
		rest, err := filepath.Rel(at, c.dir(""))
		if err != nil {
			return err
		}
		at = filepath.Join(at, first(rest))
	}
	return nil
}

func first(path string) string {
	for dir := path; ; dir = filepath.Dir(dir) {
		if filepath.Dir(dir) == "." {
			return dir
		}
	}
}

// remove removes the directories of a sandbox that has ended.
func (c cgroup) remove() error {
	for _, dir := range c.dirs() {
		err := os.Remove(dir)
		for range 100 { // the last process may still be on its way out
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
