//go:build linux

package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/inside"
	"github.com/dormouse-run/dormouse/runner/proctree"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/local"
	"github.com/dormouse-run/dormouse/sandbox/sandboxtest"
)

var runnerPath string

func TestMain(m *testing.M) {
	// As a server of its own, for a test to kill.
	if dir := os.Getenv("LOCAL_TEST_SERVER"); dir != "" {
		serve(dir)
		return
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	syscall.Umask(0o077) // as the server has it
	dir, err := os.MkdirTemp("", "local")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	runnerPath = filepath.Join(dir, "dormouse-runner")
	build := exec.Command("go", "build", "-o", runnerPath, "github.com/dormouse-run/dormouse/cmd/dormouse-runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the runner: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func open(t testing.TB, dir string) *local.Driver {
	t.Helper()
	d, err := local.New(local.Options{Dir: dir, Instance: instance(dir), Runner: runnerPath})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// instance names the data directory dir.
func instance(dir string) string { return strings.ReplaceAll(dir, "/", "-") }

// state is where the sandbox of a handle keeps its runner's state.
func state(t testing.TB, dir string, h sandbox.Handle) string {
	t.Helper()
	var v struct {
		Session    string
		Generation uint64
	}
	if err := json.Unmarshal(h, &v); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "sandboxes", v.Session, fmt.Sprint(v.Generation))
}

// runnerOf is the process of a sandbox's runner.
func runnerOf(t testing.TB, dir string, h sandbox.Handle) int {
	t.Helper()
	pid, err := inside.LivePID(state(t, dir, h))
	if err != nil || pid == 0 {
		t.Fatalf("the runner is process %d, %v", pid, err)
	}
	return pid
}

func signal(t testing.TB, dir string, h sandbox.Handle, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(runnerOf(t, dir, h), s); err != nil {
		t.Fatal(err)
	}
}

func TestLocal(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Harness {
		dir := t.TempDir()
		return sandboxtest.Harness{
			Driver:  open(t, dir),
			Restart: func(t *testing.T) sandbox.Driver { return open(t, dir) },
			Kill:    func(t *testing.T, h sandbox.Handle) { signal(t, dir, h, syscall.SIGKILL) },
			Freeze:  func(t *testing.T, h sandbox.Handle) func() { return sandboxtest.Halt(t, runnerOf(t, dir, h)) },
		}
	})
}

const session = dormouse.SessionID("sesn_test")

func fence(generation, epoch uint64) runner.Fence {
	return runner.Fence{Session: session, Generation: generation, Epoch: epoch}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func create(t testing.TB, d *local.Driver, f runner.Fence) sandbox.Sandbox {
	t.Helper()
	s, err := d.Create(within(t), sandbox.Spec{Fence: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		if err := d.Stop(within(t), s.Handle(), sandboxtest.Newest(s.Handle())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func command(op, command string) runner.Call {
	return runner.Call{Op: dormouse.OpID(op), Kind: dormouse.OpExec, Exec: &runner.Exec{Command: command}}
}

func sh(t testing.TB, s sandbox.Sandbox, op, text string) string {
	t.Helper()
	c := command(op, text)
	if err := s.Start(within(t), c); err != nil {
		t.Fatal(err)
	}
	res, err := s.Wait(within(t), c.Op, nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(res.Output))
}

// carriers counts the processes that carry the mark of an instance.
func carriers(t testing.TB, instance string) int {
	t.Helper()
	found, err := proctree.Find(func(p proctree.Process) bool {
		v, _ := p.Variable("DORMOUSE_SANDBOX")
		return strings.HasPrefix(v, instance+"/")
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func TestWorkspaceOutlivesSandboxes(t *testing.T) {
	var d sandbox.Driver = open(t, t.TempDir())
	if k, ok := d.(sandbox.Persistent); !ok || !k.KeepsWorkspace() {
		t.Error("the driver does not say so")
	}
}

// The server keeps its own files from others by its umask. Commands have the usual one.
func TestCommandsHaveTheUsualMask(t *testing.T) {
	s := create(t, open(t, t.TempDir()), fence(1, 1))
	if got, want := sh(t, s, "op_mask", "umask; touch file; mkdir dir; stat -c %a file dir"), "0022\n644\n755"; got != want {
		t.Errorf("commands see %q, want %q", got, want)
	}
}

func TestNewSaysThatNothingIsIsolated(t *testing.T) {
	var log bytes.Buffer
	_, err := local.New(local.Options{
		Dir: t.TempDir(), Instance: "i", Runner: runnerPath,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil || strings.Count(log.String(), "isolate nothing") != 1 {
		t.Errorf("%v, log: %s", err, log.String())
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, o := range map[string]local.Options{
		"no directory": {Instance: "i", Runner: runnerPath},
		"no instance":  {Dir: dir, Runner: runnerPath},
		"no runner":    {Dir: dir, Instance: "i"},
		"not a runner": {Dir: dir, Instance: "i", Runner: dir},
	} {
		if _, err := local.New(o); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunnerThatCannotStartSaysWhy(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho out of cheese; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := local.New(local.Options{Dir: dir, Instance: "i", Runner: broken})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = d.Create(within(t), sandbox.Spec{Fence: fence(1, 1)}); err == nil || !strings.Contains(err.Error(), "out of cheese") {
		t.Errorf("create: %v", err)
	}
}

func TestOlderServerCannotReplaceTheSandboxOfANewerOne(t *testing.T) {
	d := open(t, t.TempDir())
	s := create(t, d, fence(1, 5))
	if _, err := d.Create(within(t), sandbox.Spec{Fence: fence(1, 4)}); !errors.Is(err, runner.ErrStale) {
		t.Errorf("create under an older epoch: %v", err)
	}
	sh(t, s, "op_1", "true")
}

func TestOpOfASandboxThatWasReplacedIsNotRepeated(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	first := create(t, d, fence(1, 1))
	c := command("op_1", "echo x >>acts; sleep 1000")
	if err := first.Start(within(t), c); err != nil {
		t.Fatal(err)
	}
	for sh(t, first, "op_look", "cat acts") != "x" {
		first.Forget("op_look")
	}
	signal(t, dir, first.Handle(), syscall.SIGKILL)
	second := create(t, d, fence(1, 2))
	if err := second.Start(within(t), c); err != nil {
		t.Fatal(err)
	}
	if res, err := second.Wait(within(t), c.Op, nil); err != nil || res.Error == "" {
		t.Errorf("result: %+v, %v", res, err)
	}
	if got := sh(t, second, "op_2", "cat acts"); got != "x" {
		t.Errorf("acted: %q", got)
	}
}

func TestSweepStopsWhatNobodyVouchesFor(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	stray, kept := create(t, d, fence(1, 1)), create(t, d, fence(2, 1))
	other := t.TempDir()
	foreign := create(t, open(t, other), fence(1, 1))
	// Of a third only processes are left.
	lost := create(t, d, fence(3, 1))
	if err := os.RemoveAll(state(t, dir, lost.Handle())); err != nil {
		t.Fatal(err)
	}
	err := open(t, dir).Sweep(within(t), func(id dormouse.SessionID) sandbox.Ownership {
		if id == session {
			return sandbox.Ownership{Known: true, Generation: 2}
		}
		return sandbox.Ownership{}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []sandbox.Sandbox{stray, lost} {
		select {
		case <-s.Gone():
		case <-within(t).Done():
			t.Error("a stray sandbox lives on")
		}
	}
	sh(t, kept, "op_1", "true")
	sh(t, foreign, "op_1", "true")
	if n := carriers(t, instance(dir)); n != 1 {
		t.Errorf("%d processes are left, want one", n)
	}
}

func TestNothingIsLeftOfAStoppedSandbox(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	s := create(t, d, fence(1, 1))
	// A child that has left its session, its parent and its environment.
	sh(t, s, "op_1", "(env -i setsid sh -c 'while :; do echo x >>beats; sleep 0.02; done' >/dev/null 2>&1 &)")
	for sh(t, s, "op_look", "cat beats 2>/dev/null") == "" {
		s.Forget("op_look")
	}
	if err := d.Stop(within(t), s.Handle(), sandboxtest.Newest(s.Handle())); err != nil {
		t.Fatal(err)
	}
	if n := carriers(t, instance(dir)); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	beats := func() int {
		at, err := d.Workspace(session)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(at, "beats"))
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	before := beats()
	time.Sleep(150 * time.Millisecond)
	if after := beats(); after != before {
		t.Error("a child that hid still acts")
	}
	if _, err := os.Stat(state(t, dir, s.Handle())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its state is still there: %v", err)
	}
}

func TestStopOutlastsWhoeverPutsSomethingBack(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	s := create(t, d, fence(1, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	at := state(t, dir, s.Handle())
	stopping, stopped := context.WithCancel(t.Context())
	var putting sync.WaitGroup
	putting.Go(func() { // as a link does that has lost its runner, but more often
		for n := 0; stopping.Err() == nil; n++ {
			_ = os.WriteFile(filepath.Join(at, fmt.Sprint("late", n)), nil, 0o600) // until the place is gone
			time.Sleep(50 * time.Microsecond)
		}
	})
	err := d.Stop(within(t), s.Handle(), sandboxtest.Newest(s.Handle()))
	stopped()
	putting.Wait()
	if _, left := os.Stat(at); err != nil || !errors.Is(left, os.ErrNotExist) {
		t.Errorf("stop: %v, and of the state is left: %v", err, left)
	}
}

// serve is a server that starts a command and then hangs until it is killed.
func serve(dir string) {
	d, err := local.New(local.Options{Dir: dir, Instance: instance(dir), Runner: os.Getenv("LOCAL_TEST_RUNNER")})
	if err != nil {
		panic(err)
	}
	s, err := d.Create(context.Background(), sandbox.Spec{Fence: fence(1, 1)})
	if err != nil {
		panic(err)
	}
	if err := s.Start(context.Background(), command("op_1", "echo x >>acts; while [ ! -e go ]; do sleep 0.02; done; echo end")); err != nil {
		panic(err)
	}
	fmt.Println(string(s.Handle()))
	select {}
}

func TestSandboxSurvivesTheKillingOfItsServer(t *testing.T) {
	dir := t.TempDir()
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), "LOCAL_TEST_SERVER="+dir, "LOCAL_TEST_RUNNER="+runnerPath)
	server.Stderr = os.Stderr
	// A process group of its own, all of which is killed, as by a terminal.
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 1000)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	h := sandbox.Handle(bytes.TrimSpace(line[:n]))
	if err := syscall.Kill(-server.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()

	d := open(t, dir)
	began := time.Now()
	s, err := d.Attach(within(t), h, fence(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("attached in %v", time.Since(began))
	t.Cleanup(func() {
		_ = s.Close()
		if err := d.Stop(within(t), h, sandboxtest.Newest(h)); err != nil {
			t.Error(err)
		}
	})
	if rep, err := s.Ask(within(t), "op_1"); err != nil || rep.State != runner.Running {
		t.Errorf("the command: %+v, %v", rep, err)
	}
	sh(t, s, "op_2", "touch go")
	if res, err := s.Wait(within(t), "op_1", nil); err != nil || string(res.Output) != "end\n" {
		t.Errorf("result: %+v, %v", res, err)
	}
	if got := sh(t, s, "op_3", "cat acts"); got != "x" {
		t.Errorf("acted: %q", got)
	}
}

func BenchmarkCreate(b *testing.B) {
	d := open(b, b.TempDir())
	var generation uint64
	for b.Loop() {
		generation++
		s, err := d.Create(b.Context(), sandbox.Spec{Fence: fence(generation, 1)})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		_ = s.Close()
		if err := d.Stop(b.Context(), s.Handle(), sandboxtest.Newest(s.Handle())); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func TestNoZombieIsLeftOfASandboxThatDied(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	s := create(t, d, fence(1, 1))
	pid, err := inside.LivePID(state(t, dir, s.Handle()))
	if err != nil || pid == 0 {
		t.Fatalf("the runner is process %d, %v", pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- s.Start(within(t), command("op_1", "true")) }()
	<-s.Gone()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waiting; !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("what waited for the dead sandbox: %v", err)
	}
	if _, err := os.Stat(fmt.Sprint("/proc/", pid)); err == nil {
		t.Errorf("process %d is not reaped", pid)
	}
}
