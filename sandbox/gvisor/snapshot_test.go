//go:build linux

package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
	"github.com/dormouse-run/dormouse/sandbox/sandboxtest"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// snapshot takes a snapshot of what a sandbox has, or what one has left, and returns
// where.
func (h *fixture) snapshot(s sandbox.Sandbox, f runner.Fence, w sandbox.Workspace, since, as dormouse.SnapshotID) (string, sandbox.SnapshotResult, error) {
	h.t.Helper()
	c := sandbox.SnapshotRequest{
		Fence: f, Workspace: w, Since: since, As: as, Needed: true, To: filepath.Join(h.t.TempDir(), string(as)),
		Limits: layer.Limits{Entries: 1 << 20, Bytes: 1 << 40},
	}
	if s != nil {
		c.Handle = s.Handle()
	}
	if err := os.Mkdir(c.To, 0o700); err != nil {
		h.t.Fatal(err)
	}
	done, err := h.Snapshot(within(h.t), c)
	return c.To, done, err
}

func (h *fixture) mustSnapshot(s sandbox.Sandbox, f runner.Fence, w sandbox.Workspace, since, as dormouse.SnapshotID) (string, sandbox.SnapshotResult) {
	h.t.Helper()
	to, done, err := h.snapshot(s, f, w, since, as)
	if err != nil {
		h.t.Fatal(err)
	}
	return to, done
}

func (h *fixture) createOver(f runner.Fence, w sandbox.Workspace) sandbox.Sandbox {
	h.t.Helper()
	s, err := h.Create(within(h.t), sandbox.Spec{Fence: f, Workspace: w})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (h *fixture) stop(s sandbox.Sandbox) {
	h.t.Helper()
	if err := errors.Join(s.Close(), h.Stop(within(h.t), s.Handle(), sandboxtest.Newest(s.Handle()))); err != nil {
		h.t.Fatal(err)
	}
}

// volume is where a session's files are while they are open.
func (h *fixture) volume() string { return filepath.Join(h.dir, "sessions", string(session), "volume") }

// Turns that change nothing are many, and the first that does is compared with the
// point before all of them.
func TestWhatIsUnchangedIsNotCapturedAndForgetsNothing(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "mkdir d; echo one > d/one; sleep 0.1")
	h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.sh(s, "sleep 0.1")
	_, settled := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "snap_1", "snap_2") // what was fresh is not any more
	if settled.Since != "snap_1" {
		t.Errorf("it lies over %q", settled.Since)
	}
	capture := func(as dormouse.SnapshotID) sandbox.SnapshotResult {
		to := filepath.Join(t.TempDir(), string(as))
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		done, err := h.Snapshot(within(t), sandbox.SnapshotRequest{
			Fence: fence(1, 1), Handle: s.Handle(), Since: "snap_2", As: as, To: to, Limits: layer.Limits{Entries: 1 << 20, Bytes: 1 << 40},
		})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	for n := range 5 {
		h.sh(s, "true")
		if done := capture(dormouse.SnapshotID(fmt.Sprint("snap_same", n))); done.Since != "snap_2" || done.Entries != 0 {
			t.Errorf("capture %d: %+v", n, done)
		}
	}
	h.sh(s, "echo two > d/two")
	if done := capture("snap_3"); done.Since != "snap_2" || done.Entries == 0 || done.Bytes != 4 {
		t.Errorf("the change was captured as %+v", done)
	}
}

// note is in the box of a sandbox that is held.
func (h *fixture) notes() []string {
	h.t.Helper()
	found, err := filepath.Glob(filepath.Join(h.dir, "boxes", "*", "still"))
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

// A server may be killed before it has paused a kernel, or after that. The next server
// resumes the kernel.
func TestASandboxThatWasHeldRunsOn(t *testing.T) {
	next := map[string]func(*fixture, sandbox.Sandbox) sandbox.Sandbox{
		"attach": func(h *fixture, s sandbox.Sandbox) sandbox.Sandbox {
			s, err := h.Attach(within(t), s.Handle(), fence(1, 2))
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"create": func(h *fixture, _ sandbox.Sandbox) sandbox.Sandbox { return h.create(fence(1, 2)) },
		"capture": func(h *fixture, s sandbox.Sandbox) sandbox.Sandbox {
			h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
			s, err := h.Attach(within(t), s.Handle(), fence(1, 2))
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"freeze": func(h *fixture, s sandbox.Sandbox) sandbox.Sandbox {
			if err := h.Freeze(within(t), s.Handle(), fence(1, 2)); err != nil {
				t.Fatal(err)
			}
			s = h.create(fence(2, 3))
			if p := s.(sandbox.Restored).Processes(); !p.Kept {
				t.Errorf("processes: %+v", p)
			}
			return s
		},
		"stop": func(h *fixture, s sandbox.Sandbox) sandbox.Sandbox {
			h.stop(s)
			s = h.create(fence(2, 2))
			h.counting(s)
			return s
		},
	}
	for name, next := range next {
		for _, paused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, paused %v", name, paused), func(t *testing.T) {
				h := newFixture(t)
				s := h.create(fence(1, 1))
				h.counting(s)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if err := h.PauseForSnapshotAndEnd(s.Handle(), paused); err != nil {
					t.Fatal(err)
				}
				h.Driver = open(t, h.dir)
				s = next(h, s)
				t.Cleanup(func() { _ = s.Close() })
				after := h.count(s)
				h.until(s, "[ $(cat count) -gt "+strconv.Itoa(after+2)+" ] && echo yes", "yes")
				if left := h.notes(); len(left) > 0 {
					t.Errorf("it is still noted as held: %v", left)
				}
			})
		}
	}
}

// What is written to mapped memory changes no time of its file once the page is
// dirty, also if nothing has mapped it any more when it is looked for.
func TestWhatIsWrittenToMappedMemoryIsCaptured(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 on this machine")
	}
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.call(s, dormouse.OpTask, `exec python3 -c '
import mmap, os, time
f = open("mapped", "w+b"); f.truncate(4096)
m = mmap.mmap(f.fileno(), 4096); f.close()
n = 0
while not os.path.exists("stop"):
    n += 1
    m[0:8] = b"%08d" % n
m.close()
os.rename("mapped", "mapped")
open("stopped", "w").close()
while True: time.sleep(1)
'`)
	h.until(s, "[ $(head -c 8 mapped 2>/dev/null || echo 0) != 0 ] && echo yes", "yes")
	read := func(dir string) int {
		raw, err := os.ReadFile(filepath.Join(dir, "mapped"))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(string(raw[:8]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	last := 0
	for n := range 5 {
		dir, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, dormouse.SnapshotID(fmt.Sprintf("snap_%d", n-1)), dormouse.SnapshotID(fmt.Sprintf("snap_%d", n)))
		if at := read(dir); at <= last {
			t.Errorf("captured %d after %d", at, last)
		} else {
			last = at
		}
		h.sh(s, "sleep 0.05")
	}
	h.sh(s, "touch stop")
	h.until(s, "ls stopped 2>/dev/null", "stopped")
	dir, done := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "snap_4", "snap_5")
	if want, err := strconv.Atoi(strings.TrimLeft(h.sh(s, "head -c 8 mapped"), "0")); done.Since != "snap_4" || err != nil || read(dir) != want {
		t.Errorf("captured %d of %d, %v", read(dir), want, err)
	}
}

func TestACaptureThatHasNoRoomEndsNothing(t *testing.T) {
	h := newFixture(t)
	s, err := h.Create(within(t), sandbox.Spec{Fence: fence(1, 1), Environment: dormouse.Environment{Limits: dormouse.Limits{Disk: 64 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h.counting(s)
	h.sh(s, "head -c 4000000 /dev/urandom >big")
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, 0) })
	_, err = h.Snapshot(within(t), sandbox.SnapshotRequest{Fence: fence(1, 1), Handle: s.Handle(), As: "snap_1", To: small, Limits: layer.Limits{Entries: 1000, Bytes: 1 << 40}})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("captured: %v", err)
	}
	// A volume without room can be captured.
	if got := h.sh(s, "head -c 100000000 /dev/zero >/root/full || echo full"); !strings.HasSuffix(got, "full") {
		t.Fatalf("there is room: %q", got)
	}
	h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	after := h.count(s)
	h.sh(s, "rm /root/full")
	h.until(s, "[ $(cat count || echo 0) -gt "+strconv.Itoa(after+2)+" ] && echo yes", "yes")
}

func TestAKernelThatDiesWhileItIsCapturedLeavesItsFiles(t *testing.T) {
	h := newFixture(t)
	for generation := uint64(1); generation <= kills(); generation++ {
		s := h.create(fence(generation, generation))
		h.counting(s)
		h.sh(s, "mkdir -p many; for n in $(seq 300); do echo x >>many/$n; done")
		var killing sync.WaitGroup
		killing.Go(func() {
			h.sh(s, fmt.Sprintf("sleep 0.0%d", generation%8+1))
			signal(t, h.dir, s.Handle(), syscall.SIGKILL)
		})
		for n := 0; ; n++ {
			_, _, err := h.snapshot(s, fence(generation, generation), sandbox.Workspace{}, "", "snap_1")
			if errors.Is(err, sandbox.ErrGone) {
				break
			}
			if err != nil {
				t.Fatalf("capture %d: %v", n, err)
			}
		}
		killing.Wait()
		<-s.Gone()
		dir, _ := h.mustSnapshot(nil, fence(generation, generation), sandbox.Workspace{}, "", "snap_1")
		if found, err := filepath.Glob(filepath.Join(dir, "many", "*")); err != nil || len(found) != 300 {
			t.Errorf("%d files are left, %v", len(found), err)
		}
	}
}

func TestAKernelThatDoesNotAnswerIsNotWaitedForForEver(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.counting(s)
	pid := kernelOf(t, h.dir, s.Handle())
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, _, err := h.snapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err == nil || errors.Is(err, sandbox.ErrGone) {
		t.Errorf("captured: %v", err)
	}
	after := h.count(s)
	h.until(s, "[ $(cat count) -gt "+strconv.Itoa(after+2)+" ] && echo yes", "yes")
	h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	if left := h.notes(); len(left) > 0 {
		t.Errorf("it is still noted as held: %v", left)
	}
}

func TestWhatNoLayerCarriesIsLeftAndHidesWhatIsBelow(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo below >file; mkdir dir; echo below >dir/file")
	base, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.stop(s)
	w := sandbox.Workspace{Number: 1, Base: "snap_1", Layers: []string{base}}
	s = h.createOver(fence(2, 2), w)
	upper := filepath.Join(h.volume(), "ws", "1", "upper")
	for _, name := range []string{"file", "device"} { // as a kernel with a fault might
		if err := unix.Mknod(filepath.Join(upper, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
			t.Fatal(err)
		}
	}
	over, done := h.mustSnapshot(s, fence(2, 2), w, "snap_1", "snap_2")
	if done.Count != 2 || len(done.Left) != 2 || done.Left[0] != "device" || done.Left[1] != "file" {
		t.Errorf("left out: %+v", done)
	}
	h.stop(s)
	beside := filepath.Join(filepath.Dir(base), "over")
	if err := os.Rename(over, beside); err != nil {
		t.Fatal(err)
	}
	s = h.createOver(fence(3, 3), sandbox.Workspace{Number: 2, Base: "snap_2", Layers: []string{base, beside}})
	if got := h.sh(s, "find . -type f -o -type c"); got != "./dir/file" {
		t.Errorf("there are %q", got)
	}
}

func TestOldWorkspacesAreRemovedOnceTheNextHasStarted(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo mine >file; echo home >~/file")
	base, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.stop(s)
	there := func() []string {
		t.Helper()
		var all []string
		for _, pattern := range []string{"upper", "work", "ws/*", "../marks/*"} {
			found, err := filepath.Glob(filepath.Join(h.volume(), pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range found {
				rel, _ := filepath.Rel(filepath.Dir(h.volume()), name)
				all = append(all, rel)
			}
		}
		return all
	}
	for number := uint64(1); number < 4; number++ {
		s := h.createOver(fence(number+1, 1), sandbox.Workspace{Number: number, Base: "snap_1", Layers: []string{base}})
		if got := h.sh(s, "cat file ~/file"); got != "mine\nhome" {
			t.Errorf("found %q", got)
		}
		h.mustSnapshot(s, fence(number+1, 1), sandbox.Workspace{Number: number, Base: "snap_1", Layers: []string{base}}, "snap_1", "snap_2")
		n := strconv.FormatUint(number, 10)
		want := []string{"volume/ws/" + n, "marks/" + n}
		for ctx := within(t); strings.Join(there(), " ") != strings.Join(want, " "); {
			if !wait(ctx) {
				t.Fatalf("there are %v, want %v", there(), want)
			}
		}
		h.stop(s)
	}
	// What a killed server has left is swept.
	w := sandbox.Workspace{Number: 9, Base: "snap_1", Layers: []string{base}}
	s = h.createOver(fence(9, 1), w)
	if err := os.MkdirAll(filepath.Join(h.volume(), "ws", "8.new", "upper"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(within(t), func(dormouse.SessionID) sandbox.Ownership { return sandbox.Ownership{Known: true, Generation: 9} }); err != nil {
		t.Fatal(err)
	}
	for ctx := within(t); len(there()) != 1; {
		if !wait(ctx) {
			t.Fatalf("there are %v", there())
		}
	}
	h.sh(s, "cat file")
}

// A workspace that was made for a sandbox which never started is made again if it
// is to lie over another point, and is the same if not.
func TestAWorkspaceWithoutASandboxIsMadeAgain(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo 1 >file")
	first, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.sh(s, "echo 2 >file")
	second, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_2")
	h.stop(s)
	s = h.createOver(fence(2, 2), sandbox.Workspace{Number: 1, Base: "snap_1", Layers: []string{first}})
	h.sh(s, "echo new >file")
	h.stop(s)
	note := filepath.Join(filepath.Dir(h.volume()), "workspace")
	if _, err := h.Create(within(t), sandbox.Spec{Fence: fence(3, 3), Workspace: sandbox.Workspace{Number: 1, Base: "snap_2", Layers: []string{second}}}); !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("another workspace of the same number: %v", err)
	}
	if err := os.Remove(note); err != nil { // as if it had not started
		t.Fatal(err)
	}
	s = h.createOver(fence(4, 4), sandbox.Workspace{Number: 1, Base: "snap_1", Layers: []string{first}})
	if got := h.sh(s, "cat file"); got != "new" {
		t.Errorf("the same again has %q", got)
	}
	h.stop(s)
	if err := os.Remove(note); err != nil {
		t.Fatal(err)
	}
	s = h.createOver(fence(5, 5), sandbox.Workspace{Number: 1, Base: "snap_2", Layers: []string{second}})
	if got := h.sh(s, "cat file"); got != "2" {
		t.Errorf("another has %q", got)
	}
}

func TestAsManyLayersAreMountedAsTheyMayBe(t *testing.T) {
	h := newFixture(t)
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 50))
	var layers []string
	for n := range 64 {
		name := filepath.Join(dir, fmt.Sprintf("%016x", n))
		if err := errors.Join(os.MkdirAll(name, 0o755), os.WriteFile(filepath.Join(name, "file"), []byte(strconv.Itoa(n)), 0o600),
			os.WriteFile(filepath.Join(name, strconv.Itoa(n)), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		layers = append(layers, name)
	}
	s := h.createOver(fence(1, 1), sandbox.Workspace{Number: 1, Base: "snap_1", Layers: layers})
	if got := h.sh(s, "ls | wc -l; cat file"); got != "65\n63" {
		t.Errorf("found %q", got)
	}
	here, err := os.Getwd()
	if err != nil || here == dir {
		t.Errorf("this process is in %s, %v", here, err)
	}
	elsewhere := append([]string{t.TempDir()}, layers...)
	_, err = h.Create(within(t), sandbox.Spec{Fence: fence(2, 2), Workspace: sandbox.Workspace{Number: 2, Layers: elsewhere}})
	if !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("layers from anywhere: %v", err)
	}
}

// pauses is a log of how long sandboxes were paused.
type pauses struct{ all []time.Duration }

func (*pauses) Enabled(context.Context, slog.Level) bool { return true }
func (p *pauses) WithAttrs([]slog.Attr) slog.Handler     { return p }
func (p *pauses) WithGroup(string) slog.Handler          { return p }

func (p *pauses) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "paused_for" {
			p.all = append(p.all, a.Value.Duration())
		}
		return true
	})
	return nil
}

// BenchmarkSnapshot says how long a sandbox is paused for a snapshot of ten
// changed files among many.
func BenchmarkSnapshot(b *testing.B) {
	for _, files := range []int{10, 1000, 20000} {
		b.Run(strconv.Itoa(files), func(b *testing.B) {
			var held pauses
			dir := b.TempDir()
			b.Cleanup(func() { cleared(b, dir) })
			d, err := gvisor.New(gvisor.Options{Dir: dir, Instance: instance(dir), Runner: runnerPath, Program: kernelPath, Limits: gvisor.DefaultLimits(), Logger: slog.New(&held)})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = d.Close() })
			h := &fixture{Driver: d, t: b, dir: dir}
			s := h.create(fence(1, 1))
			h.sh(s, fmt.Sprintf("for n in $(seq %d); do d=d$((n/100)); [ -d $d ] || mkdir $d; echo $n >$d/$n; done; sync", files))
			h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_0")
			b.ResetTimer()
			for n := range b.N {
				h.sh(s, "for n in 1 2 3 4 5 6 7 8 9 10; do echo $RANDOM >>d0/$n; done; sleep 0.05")
				before, after := dormouse.SnapshotID(fmt.Sprintf("snap_%d", n)), dormouse.SnapshotID(fmt.Sprintf("snap_%d", n+1))
				if _, done := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, before, after); done.Since != before {
					b.Fatalf("captured %+v", done)
				}
			}
			slices.Sort(held.all)
			b.ReportMetric(held.all[len(held.all)/2].Seconds()*1000, "ms-held")
		})
	}
}

func TestACaptureNobodyWaitsForIsGivenUp(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.counting(s)
	h.sh(s, "for n in $(seq 500); do echo x >$n; done")
	for n := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		to := filepath.Join(t.TempDir(), "to")
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		var done sync.WaitGroup
		done.Go(func() {
			_, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Fence: fence(1, 1), Handle: s.Handle(), As: "snap_1", To: to, Limits: layer.Limits{Entries: 1000, Bytes: 1 << 30}})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("capture %d: %v", n, err)
			}
		})
		h.sh(s, "true")
		cancel()
		done.Wait()
	}
	after := h.count(s)
	h.until(s, "[ $(cat count) -gt "+strconv.Itoa(after+2)+" ] && echo yes", "yes")
	if left := h.notes(); len(left) > 0 {
		t.Errorf("it is still noted as held: %v", left)
	}
}

// What an ext4 file system takes, however deep it lies, is in a snapshot and comes back
// in a workspace over it. A pipe that is made inside is no file of the host's: gVisor
// keeps it in its own memory, and no snapshot holds it, nor knows of it.
func TestFilesThatLieDeepAreCarriedAndPipesAreNot(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	down := func(then string) string {
		return `perl -e 'for (1..270) { mkdir "a-long-directory"; chdir "a-long-directory" or die } ` + then + `'`
	}
	h.sh(s, down(`open F, ">", "file"; print F "deep"`)+"; mkfifo pipe; test -p pipe; sleep 0.1")
	base, done := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	t.Cleanup(func() { _ = beneath.At(base).Remove() })
	if done.Count != 0 {
		t.Errorf("left out are %.200q", done.Left)
	}
	if _, err := os.Lstat(filepath.Join(base, "pipe")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pipe is in the snapshot: %v", err)
	}
	h.stop(s)
	over := h.createOver(fence(2, 1), sandbox.Workspace{Number: 1, Base: "snap_1", Layers: []string{base}})
	if got := h.sh(over, down(`open F, "<", "file"; print <F>`)); got != "deep" {
		t.Errorf("over its snapshot it is %q", got)
	}
	if got := h.sh(over, "test -e pipe || echo none"); got != "none" {
		t.Errorf("the pipe is there: %q", got)
	}
}
