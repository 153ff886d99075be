package rig

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// GVisor is the kind of sandboxes that are kernels of their own.
const GVisor = "gvisor"

// Part says what of a sandbox is killed.
type Part string

// The parts of a sandbox. A local one is its runner and nothing else.
const (
	Runner Part = ""      // the runner, or the kernel that it is the first process of
	Gofer  Part = "gofer" // what serves the kernel its files
	Both   Part = "both"
	Notes  Part = "notes" // what was noted of it, as a server leaves that which is killed while it writes
)

// instance is what tells the sandboxes of the data directory from those of
// others: it is in the command line of each of their processes.
func (s *Server) instance() string {
	const enough = 16
	path, _ := filepath.Abs(s.Data) // it is absolute
	return string(dormouse.DigestOf([]byte(path)))[len("sha256:"):][:enough]
}

// notes is where gVisor keeps what it knows of the kernels.
func (s *Server) notes() string { return filepath.Join("/run/dormouse", s.instance()) }

// Mark is in the command line of every process of the gVisor sandboxes of the data
// directory, and of no other.
func (s *Server) Mark() string { return s.notes() }

// kernel is one gVisor sandbox.
type kernel struct {
	box, notes    string
	sentry, gofer int
}

// kernels lists those that are noted and live.
func (s *Server) kernels() []kernel {
	files, _ := filepath.Glob(filepath.Join(s.notes(), "*.state")) // the pattern is a good one
	var all []kernel
	for _, name := range files {
		var state struct {
			Sandbox struct {
				PID int `json:"pid"`
			} `json:"sandbox"`
			Gofer int `json:"goferPid"`
		}
		b, err := os.ReadFile(name)
		if err != nil || json.Unmarshal(b, &state) != nil {
			continue // it is just being written, or gone
		}
		box, _, _ := strings.Cut(filepath.Base(name), "_sandbox:")
		k := kernel{box: box, notes: name}
		if s.owns(state.Sandbox.PID) {
			k.sentry = state.Sandbox.PID
		}
		if s.owns(state.Gofer) {
			k.gofer = state.Gofer
		}
		all = append(all, k)
	}
	return all
}

// owns reports whether a process belongs to a gVisor sandbox of the data
// directory, and is no other that was given its number.
func (s *Server) owns(pid int) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return pid > 0 && err == nil && strings.Contains(string(line), s.notes()+"\x00")
}

// killKernels is kill -9 for one part of every kernel.
func (s *Server) killKernels(p Part) int {
	killed := 0
	for _, k := range s.kernels() {
		if p == Notes {
			_ = os.Truncate(k.notes, 0)
			killed++
			continue
		}
		killed += k.kill(p)
	}
	return killed
}

// KillKernel is kill -9 for a part of one kernel, which pick chooses among so
// many. It reports whether there was one.
func (s *Server) KillKernel(p Part, pick func(n int) int) bool {
	living := slices.DeleteFunc(s.kernels(), func(k kernel) bool { return k.sentry == 0 })
	if len(living) == 0 {
		return false
	}
	living[pick(len(living))].kill(p)
	return true
}

// kill is kill -9 for a part of the kernel, and says for how many processes.
func (k kernel) kill(p Part) (killed int) {
	if k.sentry > 0 && p != Gofer {
		_ = syscall.Kill(k.sentry, syscall.SIGKILL)
		killed++
	}
	if k.gofer > 0 && p != Runner {
		_ = syscall.Kill(k.gofer, syscall.SIGKILL)
		killed++
	}
	return killed
}

// clearKernels ends every gVisor sandbox of the data directory and takes away
// all they had outside it: processes, mounts, notes and limits.
func (s *Server) clearKernels() error {
	const patience = 10 * time.Second
	for end := time.Now().Add(patience); ; {
		left := 0
		each(func(pid int) {
			if s.owns(pid) {
				left++
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d processes of sandboxes did not end", left)
		}
		time.Sleep(2 * time.Millisecond)
	}
	for _, dir := range []string{s.Data, s.notes()} {
		if err := unmountUnder(dir); err != nil {
			return err
		}
		if left, err := mountsUnder(dir); err != nil || len(left) > 0 {
			return errors.Join(fmt.Errorf("still mounted are %v", left), err)
		}
	}
	return errors.Join(os.RemoveAll(s.notes()), s.removeLimits())
}

// removeLimits removes the cgroups of sandboxes that have ended.
func (s *Server) removeLimits() error {
	var errs []error
	for _, dir := range s.limits() {
		err := syscall.Rmdir(dir)
		for ; errors.Is(err, syscall.EBUSY); err = syscall.Rmdir(dir) {
			time.Sleep(2 * time.Millisecond) // the last process is on its way out
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// Strays lists what is there of gVisor sandboxes that no session has, and no
// server keeps ready for one.
func (s *Server) Strays() []string {
	owned := make(map[string]bool)
	records, _ := filepath.Glob(filepath.Join(s.Data, "sandbox", GVisor, "sessions", "*", "box.json"))
	for _, name := range records {
		var record struct {
			Box string `json:"box"`
		}
		if b, err := os.ReadFile(name); err == nil && json.Unmarshal(b, &record) == nil {
			owned[record.Box] = true
		}
	}
	var left []string
	boxes, _ := filepath.Glob(filepath.Join(s.Data, "sandbox", GVisor, "boxes", "sbx_*"))
	for _, dir := range boxes {
		if locked(s.holdOf(filepath.Base(dir))) {
			owned[filepath.Base(dir)] = true
		}
		if !owned[filepath.Base(dir)] {
			left = append(left, dir)
		}
	}
	for _, k := range s.kernels() {
		if !owned[k.box] {
			left = append(left, fmt.Sprintf("kernel %d and gofer %d of %s", k.sentry, k.gofer, k.box))
		}
	}
	return left
}

// holdOf is the file that a server holds a spare by.
func (s *Server) holdOf(box string) string { return filepath.Join(s.boxesDir(), "."+box) }

// locked reports whether a file is locked, without taking the lock: a try would
// take it for a moment.
func locked(path string) bool {
	var at unix.Stat_t
	if unix.Stat(path, &at) != nil {
		return false
	}
	locks, _ := os.ReadFile("/proc/locks") // what cannot be read is not locked
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "FLOCK") && strings.Contains(line, fmt.Sprintf(":%d ", at.Ino)) {
			return true
		}
	}
	return false
}

// mountsUnder lists what is mounted at and below a directory, in the order it was.
func mountsUnder(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var found []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		const point = 4
		fields := strings.Fields(lines.Text())
		if len(fields) > point && (fields[point] == dir || strings.HasPrefix(fields[point], dir+"/")) {
			found = append(found, fields[point])
		}
	}
	return found, lines.Err()
}

// unmountUnder unmounts everything at and below a directory, the newest first.
func unmountUnder(dir string) error {
	mounts, err := mountsUnder(dir)
	if err != nil {
		return err
	}
	for _, at := range slices.Backward(mounts) {
		err := unix.Unmount(at, 0)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(at, unix.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", at, err)
		}
	}
	return nil
}
