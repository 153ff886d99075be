//go:build linux

package gvisor_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/pidfd"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
)

// small are limits that a test reaches quickly.
var small = dormouse.Limits{CPUs: 1, Memory: 256 << 20, Pids: 40, Disk: 96 << 20, Inodes: 2048, Files: 64}

func newSmallFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	t.Cleanup(func() { cleared(t, dir) })
	h := &fixture{t: t, dir: dir}
	h.restart()
	return h
}

// restart opens the directory anew, as the next server does.
func (h *fixture) restart() { h.restartAs(gvisor.Options{Limits: small}) }

func (h *fixture) restartAs(o gvisor.Options) {
	h.t.Helper()
	o.Dir, o.Instance, o.Program = h.dir, instance(h.dir), kernelPath
	if o.Runner == "" {
		o.Runner = runnerPath
	}
	o.Logger = slog.New(slog.NewTextHandler(h.t.Output(), nil))
	d, err := gvisor.New(o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = d.Close() }) // a killed server releases it as well
	h.Driver = d
}

// try runs a command that may well fail.
func (h *fixture) try(s sandbox.Sandbox, command string) runner.Result {
	h.t.Helper()
	res, err := h.await(s, h.begin(s, command))
	if err != nil {
		h.t.Fatalf("%s: %v", command, err)
	}
	return res
}

func (h *fixture) begin(s sandbox.Sandbox, command string) dormouse.OpID {
	h.t.Helper()
	h.ops++
	op := dormouse.OpID("op_" + strconv.Itoa(h.ops))
	if err := s.Start(within(h.t), runner.Call{Op: op, Kind: dormouse.OpExec, Exec: &runner.Exec{Command: command}}); err != nil {
		h.t.Fatal(err)
	}
	return op
}

// hog takes so many megabytes and holds them.
func hog(megabytes int) string {
	return fmt.Sprintf(`perl -e '$x = "a" x (%d << 20); sleep 60'`, megabytes)
}

func TestOnlyTheHogDiesWhenMemoryRunsOut(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	h.call(s, dormouse.OpTask, "sleep 1000")
	for range 2 {
		res := h.try(s, hog(1000)+"; echo then $?")
		if !strings.Contains(res.Error, "out of memory") || !strings.Contains(res.Error, "perl") {
			t.Errorf("the result says %q", res.Error)
		}
		if !strings.Contains(string(res.Output), "then 137") {
			t.Errorf("printed %q", res.Output)
		}
	}
	if got := h.sh(s, "ps ax | grep -c '[s]leep 1000'"); got != "1" {
		t.Errorf("%s of one task left", got)
	}
}

func TestManySmallHogsDieAndTheSandboxLives(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	res := h.try(s, fmt.Sprintf(`perl -e 'for (1..30) { unless (fork) { $x = "a" x (20 << 20); sleep %d; exit } } 1 while wait > 0'; echo over`, 2*slowdown))
	if !strings.Contains(res.Error, "out of memory") || string(res.Output) != "over\n" {
		t.Errorf("result: %+v", res)
	}
	if got := h.sh(s, "echo alive"); got != "alive" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestServerThatCameLateRelievesASandbox(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	op := h.begin(s, "until [ -e go ]; do sleep 0.05; done; "+hog(1000))
	mem := memoryOf(t, h)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mem.mustEndAtTheLimit(t)
	mem.asKilledServersLeaveIt(t, false)
	h.restart()
	again, err := h.Attach(within(t), s.Handle(), fence(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	h.sh(again, "touch go")
	res, err := h.await(again, op)
	if err != nil || !strings.Contains(res.Error, "out of memory") {
		t.Errorf("result: %+v, %v", res, err)
	}
}

func TestSandboxWithoutAServerDiesRatherThanHangs(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	h.call(s, dormouse.OpTask, "until [ -e go ]; do sleep 0.05; done; "+hog(1000))
	kernel, err := pidfd.Open(kernelOf(t, h.dir, s.Handle()))
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	h.call(s, dormouse.OpTask, "sleep 1; touch go")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := kernel.Wait(within(t)); err != nil {
		t.Errorf("the sandbox hangs: %v", err)
	}
	if _, err := h.Attach(within(t), s.Handle(), fence(1, 2)); !errors.Is(err, sandbox.ErrGone) || !strings.Contains(err.Error(), "256 MiB of memory") {
		t.Errorf("attach: %v", err)
	}
}

// A server that is killed leaves a sandbox that waits, or is slow, or dies, when it
// needs memory, until the next server comes; that one must be able to go on with it,
// even if the sandbox holds more than a server gives at first.
func TestSandboxThatRanOutWhileTheServerWasKilled(t *testing.T) {
	for name, more := range map[string]bool{"at once": false, "after it was given more": true} {
		t.Run(name, func(t *testing.T) {
			for delay := time.Second; !ranOutUnseen(t, more, delay); delay *= 4 {
				t.Logf("the server was still there after %v", delay)
			}
		})
	}
}

// ranOutUnseen has a sandbox run out of memory after a delay, and reports false if the
// server did not leave before that: then it has seen it, and freed the memory.
func ranOutUnseen(t *testing.T, more bool, delay time.Duration) bool {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	op := h.begin(s, "until [ -e go ]; do sleep 0.05; done; "+hog(2500))
	began := time.Now()
	h.call(s, dormouse.OpTask, fmt.Sprintf("sleep %.0f; touch go", delay.Seconds()))
	mem := memoryOf(t, h)
	kernel, err := pidfd.Open(kernelOf(t, h.dir, s.Handle()))
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if time.Since(began) >= delay {
		return false
	}
	mem.asKilledServersLeaveIt(t, more)
	for ctx := within(t); !kernel.Ended() && !mem.ranOut(t); {
		if !wait(ctx) {
			t.Fatal("it never ran out of memory")
		}
	}
	t.Logf("the kernel of the sandbox has ended: %t", kernel.Ended())
	h.restart()
	again, err := h.Attach(within(t), s.Handle(), fence(1, 2))
	if errors.Is(err, sandbox.ErrGone) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	res, err := h.await(again, op)
	if err != nil || !strings.Contains(res.Error, "out of memory") {
		t.Errorf("result: %+v, %v", res, err)
	}
	if got := h.sh(again, "echo alive"); got != "alive" {
		t.Errorf("afterwards: %q", got)
	}
	return true
}

func TestAProcessThatNoOpWaitsForIsToldOfToo(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "(sleep 1; "+hog(1000)+") >/dev/null 2>&1 &")
	select {
	case words := <-s.(sandbox.OOMReporter).OOMKills():
		if !strings.Contains(words, "out of memory") || !strings.Contains(words, "perl") {
			t.Errorf("it says %q", words)
		}
	case <-within(t).Done():
		t.Fatal("nobody is told")
	}
	h.until(s, "echo alive", "alive")
}

func TestSandboxThatDiedOfItsMemorySaysSo(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	if err := s.(sandbox.ExitReporter).ExitCause(); err != nil {
		t.Errorf("a living sandbox died of %v", err)
	}
	// Files in memory belong to no process: no kill frees them.
	h.begin(s, "dd if=/dev/zero of=/dev/shm/fill bs=1M; dd if=/dev/zero of=/var/fill bs=1M; sleep 60")
	select {
	case <-s.Gone():
	case <-within(t).Done():
		t.Fatal("the sandbox lives")
	}
	if err := s.(sandbox.ExitReporter).ExitCause(); err == nil || !strings.Contains(err.Error(), "256 MiB of memory") {
		t.Errorf("it died of %v", err)
	}
}

func TestEveryProcessOfASandboxIsLimited(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	h.call(s, dormouse.OpTask, hog(100))
	h.until(s, "ps -o rss= -C perl | awk '{print ($1 > 100000)}'", "1")
	if used := memoryOf(t, h).used(t); used < 100<<20 {
		t.Errorf("%d bytes are counted", used)
	}
}

// bomb starts processes until it cannot, says why and ends them.
const bomb = `perl -e 'while (defined($p = fork)) { unless ($p) { sleep 60; exit } push @all, $p } print "$!\n"; kill 9, @all; 1 while wait > 0'`

func TestForkBombIsStoppedInside(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	if res := h.try(s, bomb); !strings.HasPrefix(string(res.Output), "Resource temporarily unavailable") {
		t.Errorf("printed %q, %s", res.Output, res.Error)
	}
	h.until(s, "echo alive", "alive")
}

func TestProgramsSeeTheLimits(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	for command, want := range map[string]string{
		"awk '/MemTotal/ {print $2}' /proc/meminfo": strconv.Itoa(256 << 10),
		"nproc":                          "2", // and not fewer: see Main
		"ulimit -n":                      "64",
		"ulimit -Hn":                     "64",
		"df -m / | awk 'END {print $2}'": "128",
		"perl -e 'for (1..100) { open($f[$_], \"<\", \"/dev/null\") or die \"$!\\n\" }' 2>&1": "Too many open files",
	} {
		if got := strings.TrimSpace(string(h.try(s, command).Output)); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func TestFullDiskIsToldAndSpaceComesBack(t *testing.T) {
	for name, fill := range map[string]string{
		"bytes":  "dd if=/dev/zero of=fill bs=1M",
		"inodes": "mkdir fill; i=0; while : 2>/dev/null >fill/$((i++)); do :; done; echo x >fill/x",
		"root":   "dd if=/dev/zero of=/var/fill bs=1M",
	} {
		t.Run(name, func(t *testing.T) {
			h := newSmallFixture(t)
			s := h.create(fence(1, 1))
			h.sh(s, "echo precious >kept")
			if res := h.try(s, fill+" 2>&1"); !strings.Contains(string(res.Output), "No space left on device") {
				t.Errorf("printed %q, %s", res.Output, res.Error)
			}
			if got := h.sh(s, "cat kept"); got != "precious" {
				t.Errorf("kept %q", got)
			}
			h.sh(s, "rm -rf fill /var/fill")
			if got := h.sh(s, "dd if=/dev/zero of=again bs=1M count=8 2>/dev/null; stat -c %s again"); got != strconv.Itoa(8<<20) {
				t.Errorf("afterwards %q bytes could be written", got)
			}
		})
	}
}

func TestLimitsHoldAfterWaking(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "true")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Freeze(within(t), s.Handle(), fence(1, 1)); err != nil {
		t.Fatal(err)
	}
	woken := h.create(fence(2, 2))
	if p := woken.(sandbox.Restored).Processes(); !p.Kept {
		t.Fatalf("processes: %+v", p)
	}
	if res := h.try(woken, hog(1000)); !strings.Contains(res.Error, "out of memory") {
		t.Errorf("memory: %+v", res)
	}
	if res := h.try(woken, bomb); !strings.HasPrefix(string(res.Output), "Resource temporarily unavailable") {
		t.Errorf("processes: %q, %s", res.Output, res.Error)
	}
}

func TestNothingThatASandboxIsHeldToOutlivesIt(t *testing.T) {
	h := newSmallFixture(t)
	s := h.create(fence(1, 1))
	mem := memoryOf(t, h)
	ctx := within(t)
	stray := exec.CommandContext(ctx, "sleep", "1000") // which the kernel of the sandbox knows nothing of
	if err := stray.Start(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{mem.dir, strings.Replace(mem.dir, "/memory/", "/pids/", 1)} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(stray.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	h.stop(s)
	if err := stray.Wait(); err == nil || err.Error() != "signal: killed" || ctx.Err() != nil {
		t.Errorf("it ended with %v", err)
	}
	for _, err := os.Stat(mem.dir); err == nil; _, err = os.Stat(mem.dir) {
		if !wait(ctx) {
			t.Fatal("the limits stay")
		}
	}
}

// systemd takes the controllers that none of its units needs from all cgroups at
// each reload, and what was said to them is gone.
func TestLimitsStayWhenSystemdReloads(t *testing.T) {
	h := newSmallFixture(t)
	h.create(fence(1, 1))
	before := limitsOf(t, h)
	if len(before) < 4 {
		t.Fatalf("limits: %v", before)
	}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		if out, err := exec.CommandContext(within(t), "systemctl", "daemon-reload").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if f, err := os.OpenFile("/sys/fs/cgroup/cgroup.subtree_control", os.O_WRONLY, 0); err == nil { // of the second version
		_, _ = f.WriteString("-cpu -cpuset") // which it does then
		_ = f.Close()
	}
	if diff := cmp.Diff(before, limitsOf(t, h)); diff != "" {
		t.Errorf("limits (-before +after):\n%s", diff)
	}
}

// limitsOf is what the only sandbox is held to, by file.
func limitsOf(t *testing.T, h *fixture) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, dir := range []string{"", "cpu", "cpuset", "memory/dormouse/" + instance(h.dir), "pids/dormouse/" + instance(h.dir)} {
		for _, name := range []string{"cpu.max", "cpu.cfs_quota_us", "pids.max", "cpuset.cpus", "memory.max", "memory.limit_in_bytes"} {
			found, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", dir, "*sbx_*", name))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range found {
				if strings.Contains(file, instance(h.dir)) {
					all[name] = read(t, file)
				}
			}
		}
	}
	return all
}
