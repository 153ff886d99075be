//go:build linux

package gvisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/sandbox/gvisor"
)

func TestAKernelKeepsNothingThatItWasNotGiven(t *testing.T) {
	h := newHouseOf(t, gvisor.Options{})
	// With its first kernel gVisor sees to it that nothing is inherited of what is
	// open then, and never again.
	if err := h.Stop(within(t), h.create(fence(1, 1)).Handle(), fence(1, 1)); err != nil {
		t.Fatal(err)
	}
	secret, err := os.CreateTemp(t.TempDir(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = secret.Close() }()
	const high = 200 // or what the kernel is given takes its place
	inherited, err := unix.FcntlInt(secret.Fd(), unix.F_DUPFD, high)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(inherited) }()
	box := h.create(fence(2, 2))
	h.sh(box, "true")
	processes := h.ours()
	if len(processes) < 2 {
		t.Errorf("found %v, want a kernel and its file server", processes)
	}
	for _, dir := range processes {
		if has(dir, secret) {
			t.Errorf("%s has a file that is not its own", dir)
		}
	}
}

// ours finds the kernels of the house and their file servers.
func (h *fixture) ours() (dirs []string) {
	h.t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, name := range lines {
		line, _ := os.ReadFile(name) // one that ended has none
		if strings.Contains(string(line), "--root=/run/dormouse/"+instance(h.dir)+"\x00") {
			dirs = append(dirs, filepath.Dir(name))
		}
	}
	return dirs
}

// has reports whether the process that dir is about has a file open.
func has(dir string, f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return true
	}
	open, _ := filepath.Glob(dir + "/fd/*") // the pattern is a good one
	for _, name := range open {
		if at, err := os.Stat(name); err == nil && os.SameFile(at, mine) {
			return true
		}
	}
	return false
}
