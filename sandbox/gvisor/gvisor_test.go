//go:build linux

package gvisor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
	"github.com/dormouse-run/dormouse/sandbox/sandboxtest"
)

// What the tests build: the runner, and a program that can be a kernel. Under
// the race detector this one cannot.
var runnerPath, kernelPath string

func TestMain(m *testing.M) {
	gvisor.Main()
	if told := os.Getenv(servedVariable); told != "" {
		fmt.Fprintln(os.Stderr, serve(told))
		os.Exit(1)
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	syscall.Umask(0o077) // as the server has it
	dir, err := os.MkdirTemp("", "gvisor")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if built := os.Getenv("DORMOUSE_TEST_PROGRAMS"); built != "" { // where there is no compiler
		runnerPath, kernelPath = filepath.Join(built, "dormouse-runner"), filepath.Join(built, "kernel")
		return m.Run()
	}
	runnerPath, kernelPath = filepath.Join(dir, "bin", "dormouse-runner"), filepath.Join(dir, "kernel")
	for path, pkg := range map[string]string{runnerPath: "cmd/dormouse-runner", kernelPath: "sandbox/gvisor/testdata/kernel"} {
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/dormouse-run/dormouse/"+pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, out)
			return 1
		}
	}
	return m.Run()
}

func open(t testing.TB, dir string) *gvisor.Driver { return openWith(t, dir, 0) }

// openWith is open for a driver that makes sandboxes ahead: two kernels for each.
func openWith(t testing.TB, dir string, spares int) *gvisor.Driver {
	t.Helper()
	d, err := gvisor.New(gvisor.Options{
		Dir: dir, Instance: instance(dir), Runner: runnerPath, Program: kernelPath, Limits: gvisor.DefaultLimits(), Spares: spares,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // a killed server releases it as well
	return d
}

// instance names the data directory dir.
func instance(dir string) string {
	return "test-" + strings.TrimPrefix(string(dormouse.DigestOf([]byte(dir))), "sha256:")[:16]
}

// kernelOf is the process of a sandbox's kernel.
func kernelOf(t testing.TB, dir string, h sandbox.Handle) int {
	t.Helper()
	var v struct{ Box string }
	if err := json.Unmarshal(h, &v); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join("/run/dormouse", instance(dir), v.Box+"*.state"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	raw, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Sandbox struct {
			Pid int `json:"pid"`
		} `json:"sandbox"`
	}
	if err := json.Unmarshal(raw, &state); err != nil || state.Sandbox.Pid == 0 {
		t.Fatalf("%v in %s", err, raw)
	}
	return state.Sandbox.Pid
}

func signal(t testing.TB, dir string, h sandbox.Handle, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(kernelOf(t, dir, h), s); err != nil {
		t.Fatal(err)
	}
}

func TestGVisor(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { cleared(t, dir) })
	d := openWith(t, dir, 1) // one for all: there is mostly a spare, as on a server
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Harness {
		t.Cleanup(func() { sweep(t, d) })
		return sandboxtest.Harness{
			Driver:  d,
			Restart: func(t *testing.T) sandbox.Driver { return open(t, dir) },
			Kill:    func(t *testing.T, h sandbox.Handle) { signal(t, dir, h, syscall.SIGKILL) },
			Freeze:  func(t *testing.T, h sandbox.Handle) func() { return sandboxtest.Halt(t, kernelOf(t, dir, h)) },
			Pauses:  true,
		}
	})
}

// cleared ends what a test left, so that its directory can be removed.
func cleared(t testing.TB, dir string) {
	t.Helper()
	d := open(t, dir)
	sweep(t, d)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// sweep ends the sandboxes of all sessions.
func sweep(t testing.TB, d *gvisor.Driver) {
	t.Helper()
	if err := d.Sweep(context.Background(), func(dormouse.SessionID) sandbox.Ownership { return sandbox.Ownership{Known: true} }); err != nil {
		t.Error(err)
	}
}
