package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pidsGroup is the cgroup with pids.max for everything that the runner starts. It belongs
// to the sandbox's own kernel. The runner is not in it.
type pidsGroup struct {
	once sync.Once
	dir  *os.File // never closed: it is the only reference to the cgroup
	err  error
}

// limitPids makes cmd start in the cgroup.
func (r *Runner) limitPids(cmd *exec.Cmd) error {
	if r.opts.Pids == 0 {
		return nil
	}
	g := &r.group
	g.once.Do(func() { g.dir, g.err = makePidsGroup(filepath.Join(r.opts.Dir, "cgroup"), r.opts.Pids) })
	if g.err != nil {
		return fmt.Errorf("limit processes: %w", g.err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.dir.Fd())
	return nil
}

// makePidsGroup makes a cgroup for n processes. Commands cannot find it: its file system
// is unmounted at once and stays alive through the open directory.
func makePidsGroup(at string, n int64) (_ *os.File, err error) {
	if err := os.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(at)) }()
	if err := unix.Mount("cgroup", at, "cgroup2", 0, ""); err != nil {
		return nil, fmt.Errorf("mount cgroups: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)) }()
	if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+pids"), 0); err != nil {
		return nil, err
	}
	group := filepath.Join(at, "commands")
	if err := os.Mkdir(group, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(group, "pids.max"), []byte(strconv.FormatInt(n, 10)), 0); err != nil {
		return nil, err
	}
	return os.Open(group)
}

// atLimit explains an error of a start at the limit.
func (r *Runner) atLimit(err error) error {
	if r.opts.Pids > 0 && errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("the sandbox has all the %d processes that it may have: %w", r.opts.Pids, err)
	}
	return err
}
