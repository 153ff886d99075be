//go:build linux

package inside

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner"
)

// caps reads a set of capabilities from a status file of /proc.
func caps(t *testing.T, status []byte, set string) uint64 {
	t.Helper()
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, set+":"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in:\n%s", set, status)
	return 0
}

// threads reads the status of every thread of this process.
func threads(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]byte)
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil { // a thread may have ended
			all[name] = b
		}
	}
	return all
}

func TestCommandsHaveTheUsualCapabilitiesAndTheRunnerKeepsItsOwn(t *testing.T) {
	const admin = 1 << unix.CAP_SYS_ADMIN
	self, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	mine := caps(t, self, "CapEff")
	if mine&admin == 0 {
		t.Skip("needs CAP_SYS_ADMIN to lose it")
	}
	dir := t.TempDir()
	r, err := New(Options{Socket: "s", SecretFile: "f", Dir: dir, Workspace: dir, DropCaps: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		r.spawner.close()
		r.draining.Wait()
		if err := r.journal.close(); err != nil {
			t.Error(err)
		}
	}()
	for range 3 {
		cmd := exec.Command("cat", "/proc/self/status")
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := r.startCommand(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		for _, set := range []string{"CapBnd", "CapPrm", "CapEff", "CapInh", "CapAmb"} {
			if got := caps(t, out.Bytes(), set); got&^containerCaps != 0 {
				t.Errorf("%s of a command is %x", set, got)
			}
		}
		if got := caps(t, out.Bytes(), "CapEff"); got&(1<<unix.CAP_CHOWN) != mine&(1<<unix.CAP_CHOWN) {
			t.Errorf("CapEff of a command is %x: the usual ones are gone too", got)
		}
	}
	fewer := 0
	for name, status := range threads(t) {
		if caps(t, status, "CapEff") != mine || caps(t, status, "CapBnd") != caps(t, self, "CapBnd") {
			fewer++
			if strings.Contains(name, "/"+strconv.Itoa(os.Getpid())+"/") {
				t.Error("the first thread has lost capabilities")
			}
		}
	}
	if fewer != 1 {
		t.Errorf("%d threads have fewer capabilities, want the one that starts commands", fewer)
	}
}

func TestShellsNeedBash(t *testing.T) {
	call := runner.Call{Kind: "exec", Exec: &runner.Exec{Shell: "s"}}
	dir := t.TempDir()
	r, err := New(Options{Socket: "s", SecretFile: "f", Dir: dir, Workspace: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.journal.close() }()
	if r.shell == bashPath && r.reserveShell(call) == nil {
		t.Error("with bash there is no shell")
	}
	if r.shell = "/bin/sh"; r.reserveShell(call) != nil {
		t.Error("without bash there is a shell")
	}
}
