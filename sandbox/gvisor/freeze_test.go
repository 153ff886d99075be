//go:build linux

package gvisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
)

const session = dormouse.SessionID("sesn_test")

func fence(generation, epoch uint64) runner.Fence {
	return runner.Fence{Session: session, Generation: generation, Epoch: epoch}
}

// slowdown is how many times longer than usual anything may take on this machine.
var slowdown = func() int {
	n, _ := strconv.Atoi(os.Getenv("DORMOUSE_TEST_SLOW")) // not at all, if nothing is said
	return max(n, 1)
}()

func patience(usual time.Duration) time.Duration { return usual * time.Duration(slowdown) }

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience(2*time.Minute))
	t.Cleanup(cancel)
	return ctx
}

// fixture is a driver on a directory of its own.
type fixture struct {
	*gvisor.Driver
	t   testing.TB
	dir string
	ops int
}

func newFixture(t testing.TB) *fixture { return newHouseWith(t, 0) }

// newHouseWith is newHouse with sandboxes made ahead.
func newHouseWith(t testing.TB, spares int) *fixture {
	dir := t.TempDir()
	t.Cleanup(func() { cleared(t, dir) })
	return &fixture{Driver: openWith(t, dir, spares), t: t, dir: dir}
}

// wait sleeps for a moment between two polls, and reports whether ctx still lasts.
func wait(ctx context.Context) bool {
	time.Sleep(5 * time.Millisecond)
	return ctx.Err() == nil
}

func (h *fixture) create(f runner.Fence) sandbox.Sandbox {
	h.t.Helper()
	s, err := h.Create(within(h.t), sandbox.Spec{Fence: f})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (h *fixture) call(s sandbox.Sandbox, kind dormouse.OpKind, command string) runner.Result {
	h.t.Helper()
	h.ops++
	c := runner.Call{Op: dormouse.OpID("op_" + strconv.Itoa(h.ops)), Kind: kind, Exec: &runner.Exec{Command: command}}
	if err := s.Start(within(h.t), c); err != nil {
		h.t.Fatal(err)
	}
	res, err := h.await(s, c.Op)
	if err != nil || res.Error != "" {
		h.t.Fatalf("%s: %+v, %v", command, res, err)
	}
	return res
}

// await waits for an op. On a slow machine a runner that has much to do is not
// reached for a while, and asked again, as servers do.
func (h *fixture) await(s sandbox.Sandbox, op dormouse.OpID) (runner.Result, error) {
	for ctx := within(h.t); ; {
		res, err := s.Wait(ctx, op, nil)
		if slowdown == 1 || !errors.Is(err, runner.ErrUnreachable) || !wait(ctx) {
			return res, err
		}
	}
}

func (h *fixture) sh(s sandbox.Sandbox, command string) string {
	h.t.Helper()
	return strings.TrimSpace(string(h.call(s, dormouse.OpExec, command).Output))
}

// until waits for a command to print something.
func (h *fixture) until(s sandbox.Sandbox, command, want string) {
	h.t.Helper()
	for ctx := within(h.t); h.sh(s, command) != want; {
		if !wait(ctx) {
			h.t.Fatalf("%s never printed %q", command, want)
		}
	}
}

// count reads how far the counter in a sandbox has come.
func (h *fixture) count(s sandbox.Sandbox) int {
	h.t.Helper()
	n, err := strconv.Atoi(h.sh(s, "cat count"))
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// counting starts a process that keeps its count in memory and shows it.
func (h *fixture) counting(s sandbox.Sandbox) {
	h.t.Helper()
	h.call(s, dormouse.OpTask, "n=1000; while :; do n=$((n+1)); echo $n >count.new; mv count.new count; sleep 0.02; done")
	h.until(s, "[ $(cat count) -gt 1002 ] && echo yes", "yes")
}

func (h *fixture) freeze(s sandbox.Sandbox, f runner.Fence) {
	h.t.Helper()
	if err := s.Close(); err != nil {
		h.t.Fatal(err)
	}
	if err := h.Freeze(within(h.t), s.Handle(), f); err != nil {
		h.t.Fatal(err)
	}
}

func TestProcessesRunOnInTheNextGeneration(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	h.counting(first)
	h.sh(first, "echo kept >/tmp/file; echo kept >~/file; echo kept >/etc/file")
	before := h.count(first)
	h.freeze(first, fence(1, 1))
	if n := len(h.processes(first)); n != 0 {
		t.Errorf("%d processes are left of a frozen sandbox", n)
	}
	second := h.create(fence(2, 2))
	if woken := second.(sandbox.Restored).Processes(); !woken.Kept {
		t.Fatalf("processes: %+v", woken)
	}
	after := h.count(second)
	h.until(second, "[ $(cat count) -gt "+strconv.Itoa(after+2)+" ] && echo yes", "yes")
	if after < before || after > before+2000 {
		t.Errorf("counted %d before and %d after", before, after)
	}
	if got := h.sh(second, "cat /tmp/file ~/file /etc/file | sort -u"); got != "kept" {
		t.Errorf("files: %q", got)
	}
	// And again, from a sandbox that was itself woken.
	h.freeze(second, fence(2, 2))
	third := h.create(fence(3, 3))
	h.until(third, "[ $(cat count) -gt "+strconv.Itoa(after+2)+" ] && echo yes", "yes")
}

// A server of another version goes on with a sandbox that is awake, and has a runner of
// its own.
func TestProcessesRunOnAfterASleepUnderANewerServer(t *testing.T) {
	newer := filepath.Join(filepath.Dir(runnerPath), "dormouse-runner-newer")
	raw, err := os.ReadFile(runnerPath)
	if err == nil {
		err = os.WriteFile(newer, raw, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(newer) })
	h := newSmallFixture(t)
	first := h.create(fence(1, 1))
	h.counting(first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	h.restartAs(gvisor.Options{Limits: small, Runner: newer})
	for generation := range uint64(2) { // woken once, it still has the runner it began with
		f := fence(generation+1, generation+2)
		s, err := h.Attach(within(t), first.Handle(), f)
		if err != nil {
			t.Fatal(err)
		}
		h.freeze(s, f)
		first = h.create(fence(generation+2, generation+3))
		if woken := first.(sandbox.Restored).Processes(); !woken.Kept {
			t.Fatalf("processes: %+v", woken)
		}
		after := h.count(first)
		h.until(first, "[ $(cat count) -gt "+strconv.Itoa(after+2)+" ] && echo yes", "yes")
	}
}

// processes are the command lines of those that carry a sandbox's name.
func (h *fixture) processes(s sandbox.Sandbox) map[int]string {
	h.t.Helper()
	var at struct{ Box string }
	if err := json.Unmarshal(s.Handle(), &at); err != nil {
		h.t.Fatal(err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	all := make(map[int]string)
	for _, name := range lines {
		line, err := os.ReadFile(name)
		if pid, bad := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && bad == nil && strings.Contains(string(line), at.Box) {
			all[pid] = string(line)
		}
	}
	return all
}

func TestAnImageIsGoodForOneWaking(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	h.counting(first)
	h.freeze(first, fence(1, 1))
	second := h.create(fence(2, 2))
	signal(t, h.dir, second.Handle(), 9)
	<-second.Gone()
	third := h.create(fence(3, 3))
	woken := third.(sandbox.Restored).Processes()
	if woken.Kept {
		t.Error("processes that ran on were woken once more")
	}
	if got := h.sh(third, "ps ax 2>/dev/null | grep -c '[s]leep 0.02'; cat count | wc -l"); !strings.HasSuffix(got, "1") {
		t.Errorf("files: %q", got)
	}
}

// The server was killed after it had taken the image and before any kernel ran with it.
func TestMemoryOfAWakeThatNobodyFinishedIsFreedAndSaidToBeLost(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	h.counting(first)
	h.freeze(first, fence(1, 1))
	dir := filepath.Join(h.dir, "sessions", string(session))
	if err := os.Rename(filepath.Join(dir, "image"), filepath.Join(dir, "waking")); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(within(t), func(dormouse.SessionID) sandbox.Ownership { return sandbox.Ownership{Known: true} }); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "waking")); err != nil || len(left) > 0 {
		t.Errorf("left of the image: %v, %v", left, err)
	}
	second := h.create(fence(2, 2))
	if woken := second.(sandbox.Restored).Processes(); woken.Kept || !strings.Contains(woken.Lost, "while they were being woken") {
		t.Errorf("processes: %+v", woken)
	}
	if _, err := os.Stat(filepath.Join(dir, "waking")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the note outlived the start that told: %v", err)
	}
}

// A server was killed while it froze the sandbox, which then died, or is ended.
func TestAnImageThatNobodySealedIsRemovedWithItsSandbox(t *testing.T) {
	h := newFixture(t)
	unsealed := filepath.Join(h.dir, "sessions", string(session), "image.new")
	cut := func() {
		t.Helper()
		if err := errors.Join(os.Mkdir(unsealed, 0o700), os.WriteFile(filepath.Join(unsealed, "pages.img"), make([]byte, 1<<20), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for how, end := range map[string]func(sandbox.Sandbox){"stopped": h.stop, "swept": func(sandbox.Sandbox) { h.sweep() }} {
		s := h.create(fence(1, 1))
		cut()
		end(s)
		if _, err := os.Stat(unsealed); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it is left: %v", how, err)
		}
	}
	cut()
	h.sweep()
	if _, err := os.Stat(unsealed); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("swept when nothing runs: it is left: %v", err)
	}
}

func TestADamagedImageLosesProcessesAndSaysSo(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	h.counting(first)
	h.freeze(first, fence(1, 1))
	name := filepath.Join(h.dir, "sessions", string(session), "image", "checkpoint.img")
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	second := h.create(fence(2, 2))
	if woken := second.(sandbox.Restored).Processes(); woken.Kept || !strings.Contains(woken.Lost, "damaged") {
		t.Errorf("processes: %+v", woken)
	}
	if h.count(second) < 1000 {
		t.Error("the files are not there")
	}
}

func TestFreezingIsTakenUpWhereItWasCutOff(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	h.counting(first)
	h.freeze(first, fence(1, 1))
	if err := h.Freeze(within(t), first.Handle(), fence(1, 2)); err != nil {
		t.Errorf("freezing what is frozen: %v", err)
	}
	second := h.create(fence(2, 2))
	if err := h.Freeze(within(t), first.Handle(), fence(1, 2)); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("freezing what was woken: %v", err)
	}
	if woken := second.(sandbox.Restored).Processes(); !woken.Kept {
		t.Errorf("processes: %+v", woken)
	}
}

func TestNoOpRunsOnInTheNextGeneration(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	c := runner.Call{Op: "op_late", Kind: dormouse.OpExec, Exec: &runner.Exec{Command: "echo x >begun; sleep 2; echo x >late"}}
	if err := first.Start(within(t), c); err != nil {
		t.Fatal(err)
	}
	h.until(first, "cat begun", "x")
	h.freeze(first, fence(1, 1))
	second := h.create(fence(2, 2))
	if got := h.sh(second, "sleep 3; ls"); got != "begun" {
		t.Errorf("there are %q", got)
	}
}

func TestAShellAndATaskRunOn(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	in := func(s sandbox.Sandbox, op dormouse.OpID, command string) string {
		t.Helper()
		if err := s.Start(within(t), runner.Call{Op: op, Kind: dormouse.OpExec, Exec: &runner.Exec{Command: command, Shell: "a"}}); err != nil {
			t.Fatal(err)
		}
		res, err := s.Wait(within(t), op, nil)
		if err != nil || res.NewShell {
			t.Fatalf("%+v, %v", res, err)
		}
		return strings.TrimSpace(string(res.Output))
	}
	in(first, "op_a1", "cd /usr; here=yes; f() { echo f is known; }")
	h.freeze(first, fence(1, 1))
	second := h.create(fence(2, 2))
	if got := in(second, "op_a2", "pwd; echo $here; f"); got != "/usr\nyes\nf is known" {
		t.Errorf("the shell says %q", got)
	}
}

func TestFilesOfASessionNobodyKnowsAreSetAside(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo kept >file; sync")
	stray := func(dormouse.SessionID) sandbox.Ownership { return sandbox.Ownership{} }
	if err := h.Sweep(within(t), func(dormouse.SessionID) sandbox.Ownership { return sandbox.Ownership{Unsure: true} }); err != nil {
		t.Fatal(err)
	}
	h.sh(s, "true") // in doubt it stays
	if err := h.Sweep(within(t), stray); err != nil {
		t.Fatal(err)
	}
	<-s.Gone()
	found, err := filepath.Glob(filepath.Join(h.dir, "lost", string(session)+"-*", "volume*"))
	if err != nil || len(found) == 0 {
		t.Errorf("set aside were %v, %v", found, err)
	}
	if n := len(h.processes(s)); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	again := h.create(fence(1, 2))
	if got := h.sh(again, "ls"); got != "" {
		t.Errorf("a new session of the name has %q", got)
	}
}

func TestAnImageOfAnotherVersionLosesProcessesAndSaysSo(t *testing.T) {
	for key, why := range map[string]string{"program": "another version", "host": "have changed"} {
		t.Run(key, func(t *testing.T) {
			h := newFixture(t)
			first := h.create(fence(1, 1))
			h.counting(first)
			h.freeze(first, fence(1, 1))
			name := filepath.Join(h.dir, "sessions", string(session), "image", "image.json")
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var note map[string]any
			if err := json.Unmarshal(raw, &note); err != nil {
				t.Fatal(err)
			}
			note[key] = "another"
			if raw, err = json.Marshal(note); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			second := h.create(fence(2, 2))
			if woken := second.(sandbox.Restored).Processes(); woken.Kept || !strings.Contains(woken.Lost, why) {
				t.Errorf("processes: %+v", woken)
			}
			if h.count(second) < 1000 {
				t.Error("the files are not there")
			}
		})
	}
}
