//go:build linux

package gvisor_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/sandboxtest"
)

// sweep sweeps as a server does whose sessions all sleep.
func (h *fixture) sweep() {
	h.t.Helper()
	if err := h.Sweep(within(h.t), func(dormouse.SessionID) sandbox.Ownership { return sandbox.Ownership{Known: true} }); err != nil {
		h.t.Fatal(err)
	}
}

func TestAVolumeIsNeverMountedTwice(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	h.sh(first, "echo kept >file")
	// An open file keeps its file system mounted when its mount is detached.
	look, err := os.Open(filepath.Join(h.dir, "sessions", string(session), "volume", "upper", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = look.Close() }()
	h.freeze(first, fence(1, 1))
	second := h.create(fence(2, 2))
	if got := h.sh(second, "cat file"); got != "kept" {
		t.Errorf("it has %q", got)
	}
	shown := 0
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range devices {
		if raw, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(raw), h.dir+"/sessions/") {
			shown++
		}
	}
	if shown != 1 {
		t.Errorf("%d devices show the volume", shown)
	}
}

func TestASandboxThatWasPausedWithoutANoteIsFrozen(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	h.counting(first)
	before := h.count(first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.PauseAndEnd(within(t), first.Handle(), fence(1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := h.Freeze(within(t), first.Handle(), fence(1, 2)); err != nil {
		t.Fatal(err)
	}
	second := h.create(fence(2, 3))
	if woken := second.(sandbox.Restored).Processes(); !woken.Kept {
		t.Fatalf("processes: %+v", woken)
	}
	if after := h.count(second); after < before {
		t.Errorf("counted %d before and %d after", before, after)
	}
}

func TestASpareWithoutTheFilesIsNotTakenOver(t *testing.T) {
	h := newHouseWith(t, 1)
	first := h.create(fence(1, 1))
	h.sh(first, "echo kept >file")
	if err := h.Stop(within(t), first.Handle(), sandboxtest.Newest(first.Handle())); err != nil {
		t.Fatal(err)
	}
	h.spare()
	for h.ClaimAndEnd(fence(2, 2)) != nil {
		h.spare() // it waits at its bell, but was not counted yet
	}
	second := h.create(fence(2, 3))
	if got := h.sh(second, "cat file"); got != "kept" {
		t.Errorf("it has %q", got)
	}
}

func TestAKernelThatNobodyNotedIsEnded(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var at struct{ Box string }
	if err := json.Unmarshal(s.Handle(), &at); err != nil {
		t.Fatal(err)
	}
	notes, err := filepath.Glob(filepath.Join("/run/dormouse", instance(h.dir), at.Box+"*.state"))
	if err != nil || len(notes) != 1 {
		t.Fatalf("%v, %v", notes, err)
	}
	if err := os.Remove(notes[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Attach(within(t), s.Handle(), fence(1, 2)); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("attach: %v", err)
	}
	if n := len(h.processes(s)); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

func TestWhatEndedServersLeftIsSwept(t *testing.T) {
	h := newHouseWith(t, 1)
	mine := h.spare()
	kernels := filepath.Join("/run/dormouse", instance(h.dir))
	const box, other = "sbx_aaaaaaaaaaaaaaaa", "sbx_bbbbbbbbbbbbbbbb"
	left := []string{
		filepath.Join(h.dir, "boxes", "."+box), filepath.Join(kernels, "runsc-"+box+".sock"), filepath.Join(kernels, box+"_sandbox:"+box+".lock"),
	}
	for _, name := range left {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/dormouse*" + instance(h.dir) + "*" + mine)
	if nested, e := filepath.Glob("/sys/fs/cgroup/*/dormouse/" + instance(h.dir) + "/" + mine); err == nil && e == nil {
		groups = append(groups, nested...)
	}
	if len(groups) == 0 {
		t.Fatalf("the spare has no control group: %v", err)
	}
	for _, dir := range groups { // what is left when nothing else of a sandbox is
		dir = strings.TrimSuffix(dir, mine) + other
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		left = append(left, dir)
	}
	h.sweep()
	for _, name := range left {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	if _, err := os.Stat(filepath.Join(h.dir, "boxes", "."+mine)); err != nil {
		t.Errorf("the spare of a living server is no longer held: %v", err)
	}
}

func TestAVolumeThatAnEndedServerLeftMountedIsClosed(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo kept >file")
	h.freeze(s, fence(1, 1))
	if err := h.LeaveMounted(session); err != nil {
		t.Fatal(err)
	}
	if there, err := mount.Is(h.volume()); err != nil || !there {
		t.Fatalf("mounted: %v, %v", there, err)
	}
	h.sweep()
	if there, err := mount.Is(h.volume()); err != nil || there {
		t.Errorf("still mounted: %v, %v", there, err)
	}
	if got := h.sh(h.create(fence(2, 2)), "cat file"); got != "kept" {
		t.Errorf("it has %q", got)
	}
}

func TestADirectoryReachedThroughALinkIsTheSame(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	t.Cleanup(func() { cleared(t, dir) })
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	h := &fixture{Driver: open(t, link), t: t, dir: link}
	for generation := range uint64(3) {
		f := fence(generation+1, 1)
		s := h.create(f)
		h.sh(s, "echo line >> lines")
		if got := h.sh(s, "wc -l < lines"); got != strconv.FormatUint(generation+1, 10) {
			t.Errorf("it has %s lines", got)
		}
		h.freeze(s, f)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("something is still mounted in %s", dir)
	}
}

// After a stop the files can be used at once. What is left of the sandbox
// before is removed meanwhile, and the volume stays mounted as long as a
// process has it open.
func TestAStoppedSandboxIsClearedWhileTheNextStarts(t *testing.T) {
	h := newFixture(t)
	there := func(s sandbox.Sandbox) bool {
		t.Helper()
		var at struct{ Box string }
		if err := json.Unmarshal(s.Handle(), &at); err != nil || at.Box == "" {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(h.dir, "boxes", at.Box))
		return err == nil
	}
	eventually := func(is func() bool, what string) {
		t.Helper()
		for ctx := within(t); !is(); time.Sleep(10 * time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatal(what)
			}
		}
	}
	open := func() bool {
		t.Helper()
		raw, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(raw), " "+h.volume()+" ")
	}
	first := h.create(fence(1, 1))
	h.sh(first, "echo 1 >file")
	if !open() {
		t.Skip("volumes are directories on this machine")
	}
	for generation := uint64(2); generation < 6; generation++ {
		if err := h.Stop(within(t), first.Handle(), sandboxtest.Newest(first.Handle())); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Attach(within(t), first.Handle(), fence(generation-1, generation)); !errors.Is(err, sandbox.ErrGone) {
			t.Fatalf("it is reached: %v", err)
		}
		next := h.create(fence(generation, generation))
		if got, want := h.sh(next, "cat file; echo "+strconv.FormatUint(generation, 10)+" >file"), strconv.FormatUint(generation-1, 10); got != want {
			t.Errorf("it has %q, want %q", got, want)
		}
		eventually(func() bool { return !there(first) }, "the box before is still there")
		if !there(next) || !open() {
			t.Error("it was cleared away under a sandbox")
		}
		first = next
	}
	if err := h.Stop(within(t), first.Handle(), sandboxtest.Newest(first.Handle())); err != nil {
		t.Fatal(err)
	}
	eventually(func() bool { return !there(first) && !open() }, "the last box is still there, or the volume open")
	if err := h.Stop(within(t), first.Handle(), sandboxtest.Newest(first.Handle())); err != nil {
		t.Errorf("stop once more: %v", err)
	}
}
