//go:build linux

package proctree_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner/proctree"
)

// adopt makes the test's process the one that orphans come to.
func adopt(t *testing.T) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
}

// named are those of all processes found that run with such an argument.
func named(t *testing.T, d *proctree.Descendants, argument string) (n int) {
	t.Helper()
	found, _, err := d.Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
		if strings.Contains(string(line), argument) {
			n++
		}
	}
	return n
}

func TestDescendantsAreFoundWhereverTheyWent(t *testing.T) {
	adopt(t)
	d := new(proctree.Descendants)
	if named(t, d, "1000.") != 0 { // and strangers are known from now on
		t.Fatal("there are some before")
	}
	for name, c := range map[string]struct {
		argument, command string
	}{
		"a child":                      {"1000.1", "exec sleep 1000.1"},
		"a child of a child":           {"1000.2", "sleep 1000.2; true"},
		"an orphan":                    {"1000.3", "sleep 1000.3 & exec sleep 1"},
		"an orphan in its own session": {"1000.4", "(setsid sleep 1000.4 &) ; exec sleep 1"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", c.command)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = proctree.End(t.Context(), func(p proctree.Process) bool {
					line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
					return p.PID == cmd.Process.Pid || strings.Contains(string(line), c.argument)
				}, 0)
				_ = cmd.Wait()
			})
			until(t, func() bool { return named(t, d, "sleep\x00"+c.argument) == 1 })
			time.Sleep(1200 * time.Millisecond) // its parent is gone
			if n := named(t, d, "sleep\x00"+c.argument); n != 1 {
				t.Errorf("found %d", n)
			}
		})
	}
}

// A process that hands itself on from child to child, each of which ends at once, is
// always there and never for long.
func TestDescendantThatKeepsForkingIsNeverMissed(t *testing.T) {
	adopt(t)
	reaping := make(chan struct{})
	t.Cleanup(func() { <-reaping })
	const again = `[ ! -e "$1" ] || { /bin/sh -c "$0" "$0" "$1" & }`
	hopping := filepath.Join(t.TempDir(), "hopping")
	if err := os.WriteFile(hopping, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hop := exec.Command("/bin/sh", "-c", again, again, hopping)
	if err := hop.Start(); err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	t.Cleanup(func() {
		over.Store(true)
		if err := os.Remove(hopping); err != nil {
			t.Error(err)
		}
	})
	go func() { // what it leaves comes to this process
		defer close(reaping)
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
			if over.Load() && errors.Is(err, unix.ECHILD) {
				return
			}
			if pid <= 0 {
				time.Sleep(50 * time.Microsecond)
			}
		}
	}()
	d := new(proctree.Descendants)
	const looks = 1000
	unsure := 0
	for range looks {
		found, whole, err := d.Find()
		if err != nil {
			t.Fatal(err)
		}
		if !whole {
			unsure++
		} else if len(found) == 0 {
			t.Fatal("nothing was found, and nothing was said to have been missed")
		}
	}
	t.Logf("%d of %d looks were not whole", unsure, looks)
}

func TestStrangersStayStrangers(t *testing.T) {
	d := new(proctree.Descendants)
	for range 3 {
		found, _, err := d.Find()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range found {
			if p.PID == os.Getppid() || p.PID == 1 || p.PID == os.Getpid() {
				t.Errorf("%d is found", p.PID)
			}
		}
	}
}

func until(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never was so")
		}
	}
}
