//go:build linux

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/inside"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dormouse-runner")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "dormouse-runner")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// program is the binary as it runs.
type program struct {
	*exec.Cmd
	dir, workspace string
	link           *runner.Link
	ops            int
}

func args(dir, workspace string) []string {
	return []string{
		"-socket", filepath.Join(dir, "socket"), "-secret", filepath.Join(dir, "secret"), "-dir", dir, "-workspace", workspace,
	}
}

func start(t *testing.T) *program {
	t.Helper()
	p := &program{dir: t.TempDir(), workspace: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.dir, "secret"), []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Cmd = exec.Command(binary, args(p.dir, p.workspace)...)
	p.Env = []string{"PATH=/usr/bin:/bin", "DORMOUSE_CRASH_AT=nowhere"}
	p.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	link, err := runner.Listen(runner.LinkOptions{
		Path: filepath.Join(p.dir, "socket"), Secret: "hush",
		Fence: runner.Fence{Session: "sesn_test", Generation: 1, Epoch: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	if err := link.Ready(within(t)); err != nil {
		t.Fatal(err)
	}
	p.link = link
	return p
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// op makes an op id that is unique on this machine.
func (p *program) op() dormouse.OpID {
	return dormouse.OpID(fmt.Sprintf("op_%d_%d", p.Process.Pid, p.ops))
}

func (p *program) sh(t *testing.T, command string) string {
	t.Helper()
	p.ops++
	c := runner.Call{Op: p.op(), Kind: dormouse.OpExec, Exec: &runner.Exec{Command: command}}
	if err := p.link.Start(within(t), c); err != nil {
		t.Fatal(err)
	}
	res, err := p.link.Wait(within(t), c.Op, nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(res.Output))
}

func (p *program) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(p.workspace, name))
	return string(b)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestTermEndsEverythingThatWasStarted(t *testing.T) {
	p := start(t)
	// A child that has left its session, its parent and its environment, and
	// does not listen either.
	p.sh(t, "(env -i setsid bash -c 'trap \"\" TERM; while :; do echo x >>beats; sleep 0.02; done' >/dev/null 2>&1 &)")
	eventually(t, "the child acts", func() bool { return p.read("beats") != "" })
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("runner ended with %v", err)
	}
	before := p.read("beats")
	time.Sleep(150 * time.Millisecond)
	if p.read("beats") != before {
		t.Error("the child still acts")
	}
}

func TestHangupChangesNothing(t *testing.T) {
	p := start(t)
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if got := p.sh(t, "kill -HUP $$; echo survived"); got != "" {
		t.Errorf("a command was born deaf to SIGHUP: %q", got)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	p := start(t)
	for range 5 {
		p.sh(t, "(sleep 0.01 &)")
	}
	eventually(t, "no zombie is left", func() bool {
		all, err := proctree.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all {
			if q.Parent == p.Process.Pid {
				return false
			}
		}
		return true
	})
	if got := p.sh(t, "exit 3"); got != "" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestSecondRunnerOfADirectoryIsRefused(t *testing.T) {
	p := start(t)
	if pid, err := inside.LivePID(p.dir); err != nil || pid != p.Process.Pid {
		t.Errorf("alive: %d, %v", pid, err)
	}
	out, err := exec.Command(binary, args(p.dir, p.workspace)...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !bytes.Contains(out, []byte("lock the pid file")) {
		t.Errorf("%v: %s", err, out)
	}
	p.sh(t, "true")
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	if pid, err := inside.LivePID(p.dir); err != nil || pid != 0 {
		t.Errorf("alive once dead: %d, %v", pid, err)
	}
}

func TestCommandsSeeNothingMeantForTheRunner(t *testing.T) {
	p := start(t)
	if out := p.sh(t, "env"); strings.Contains(out, "CRASH") || !strings.Contains(out, "DORMOUSE_OP="+string(p.op())) {
		t.Errorf("environment:\n%s", out)
	}
}

func TestRunnerLinksAlmostNothing(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(out)) {
		switch name = strings.TrimSpace(name); name {
		case "net/http", "crypto/tls", "text/template", "database/sql":
			t.Errorf("the runner links %s", name)
		}
	}
}
