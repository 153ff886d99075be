//go:build linux

package gvisor_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// processorsFile says where a sandbox may run.
func processorsFile(t *testing.T, dir string, h sandbox.Handle) string {
	t.Helper()
	name := filepath.Join(filepath.Dir(weightFile(t, dir, h)), "cpuset.cpus")
	return strings.Replace(name, "/sys/fs/cgroup/cpu/", "/sys/fs/cgroup/cpuset/", 1) // of the first version
}

// runsOn waits until a sandbox may run on some processors, or on all.
func runsOn(t *testing.T, dir string, h sandbox.Handle, all bool) {
	t.Helper()
	file := processorsFile(t, dir, h)
	for end := time.Now().Add(patience(30 * time.Second)); ; time.Sleep(5 * time.Millisecond) {
		got := strings.TrimSpace(read(t, file))
		if (got == everywhere(t) || got == "") == all {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it runs on %s", got)
		}
	}
}

// everywhere is every processor that there is for us.
func everywhere(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/self/status")) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return strings.TrimSpace(list)
		}
	}
	t.Fatal("no processors")
	return ""
}

func TestWhoeverNobodyWaitsForMakesRoomForOthers(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("there is one processor, for all")
	}
	h := newSmallFixture(t)
	quick := h.create(fence(1, 1))
	slow := h.create(runner.Fence{Session: "sesn_slow", Generation: 1, Epoch: 1})
	runsOn(t, h.dir, slow.Handle(), true)
	stop := keepAsking(t, quick)
	runsOn(t, h.dir, slow.Handle(), false)
	runsOn(t, h.dir, quick.Handle(), true)
	if _, err := slow.(sandbox.Machine).Usage(within(t)); err != nil { // a client waits for it too
		t.Fatal(err)
	}
	runsOn(t, h.dir, slow.Handle(), true)
	runsOn(t, h.dir, slow.Handle(), false)
	if err := slow.Close(); err != nil {
		t.Fatal(err)
	}
	runsOn(t, h.dir, slow.Handle(), true) // it lives on without a server that would move it
	stop()
	runsOn(t, h.dir, quick.Handle(), true)
}

func TestServerFindsWhatTheOneBeforeLeftInACorner(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// As if the server had been killed while a client waited for another
	// sandbox.
	if err := os.WriteFile(processorsFile(t, h.dir, s.Handle()), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	h.restart()
	runsOn(t, h.dir, s.Handle(), true)
}
