//go:build linux

package gvisor_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
)

// newCuttable is a house whose volumes are of 128 MiB, and whose machine can end.
func newCuttable(t *testing.T) *fixture {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	h := &fixture{t: t, dir: t.TempDir()}
	t.Cleanup(func() { cleared(t, h.dir) })
	h.powerOn()
	return h
}

func (h *fixture) powerOn() {
	h.t.Helper()
	limits := gvisor.DefaultLimits()
	limits.Disk, limits.Inodes = 128<<20, 4096
	h.restartAs(gvisor.Options{Limits: limits})
}

func (h *fixture) session(names ...string) string {
	return filepath.Join(append([]string{h.dir, "sessions", string(fence(1, 1).Session)}, names...)...)
}

// powerCut ends the machine: its volume is what is on the disk while it is open.
func (h *fixture) powerCut(s sandbox.Sandbox) {
	h.t.Helper()
	image := h.session("volume.img")
	if out, err := exec.Command("cp", "--sparse=always", image, image+".cut").CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	if s != nil {
		signal(h.t, h.dir, s.Handle(), syscall.SIGKILL)
		_ = s.Close()
	}
	for _, dir := range []string{"boxes", "sessions"} {
		if err := gvisor.UnmountBelow(filepath.Join(h.dir, dir)); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := os.Rename(image+".cut", image); err != nil {
		h.t.Fatal(err)
	}
	h.powerOn()
}

func (h *fixture) recoverFrom(f runner.Fence, point string) *sandbox.Recovered {
	h.t.Helper()
	done, err := h.Recover(within(h.t), sandbox.Recovery{
		Fence: f, Snapshot: "snap_1",
		Newest: func(context.Context) ([]string, func(), error) { return []string{point}, func() {}, nil },
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return done
}

// holdOpen keeps what is mounted now mounted elsewhere, as whatever was started
// meanwhile does.
func holdOpen(t *testing.T) (release func()) {
	t.Helper()
	elsewhere := exec.Command("unshare", "-m", "sh", "-c", "echo; exec sleep 600")
	out, err := elsewhere.StdoutPipe()
	if err == nil {
		err = elsewhere.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	release = func() {
		_ = elsewhere.Process.Kill()
		_ = elsewhere.Wait()
	}
	t.Cleanup(release)
	return release
}

// Where a volume has no room for both, a session has the snapshot's file after a cut, and
// the host the one that was found.
func TestRecoverAFileThatIsMoreThanHalfOfItsVolume(t *testing.T) {
	h := newCuttable(t)
	s := h.create(fence(1, 1))
	h.sh(s, "yes old | head -c 70000000 > big; sleep 0.1")
	point, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.sh(s, "yes new | dd of=big conv=notrunc,fsync iflag=fullblock bs=1M count=66 2>/dev/null; sync")
	h.powerCut(s)
	done := h.recoverFrom(fence(2, 2), point)
	if done == nil || done.Count != 1 || !done.Files[0].Outside || done.Files[0].SavedAs != "" || done.Outside == "" {
		t.Fatalf("recovered is %+v", done)
	}
	if at, err := os.Stat(filepath.Join(done.Outside, "big")); err != nil || at.Size() != 70000000 {
		t.Errorf("the one found is %v, %v", at, err)
	}
	s = h.create(fence(2, 2))
	if got := h.sh(s, "head -n1 big; ls"); got != "old\nbig" {
		t.Errorf("there is %q", got)
	}
}

// Where it has no room for the snapshot at all, the session goes on with the snapshot, and
// the host keeps the volume.
func TestRecoverAVolumeThatSomethingElseHasFilled(t *testing.T) {
	h := newCuttable(t)
	s := h.create(fence(1, 1))
	h.sh(s, "yes old | head -c 70000000 > big; sleep 0.1")
	point, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.sh(s, "rm big; yes new | head -c 90000000 > other; sync")
	h.powerCut(s)
	done := h.recoverFrom(fence(2, 2), point)
	if done == nil || done.Count != 1 || done.Aside == "" {
		t.Fatalf("recovered is %+v", done)
	}
	if _, err := os.Stat(done.Aside); err != nil {
		t.Error(err)
	}
	s = h.create(fence(2, 2))
	if got := h.sh(s, "head -n1 big; ls"); got != "old\nbig" {
		t.Errorf("there is %q", got)
	}
}

// A file that was written to in place may be on the disk in part, with the times that it
// had before.
func TestRecoverAFileThatIsTornAndHasOldTimes(t *testing.T) {
	h := newCuttable(t)
	s := h.create(fence(1, 1))
	h.sh(s, "yes old | head -c 8000000 > big; sleep 0.1")
	point, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.sh(s, "yes new | dd of=big conv=notrunc iflag=fullblock bs=1M count=7 2>/dev/null")
	f, err := os.OpenFile(h.session("volume", "upper", "big"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	if err := errors.Join(unix.SyncFileRange(int(f.Fd()), 0, 4<<20, wait), f.Close()); err != nil {
		t.Fatal(err)
	}
	h.powerCut(s)
	done := h.recoverFrom(fence(2, 2), point)
	if done == nil || done.Count != 1 || done.Files[0].Path != "big" || done.Files[0].SavedAs == "" {
		t.Errorf("recovered is %+v", done)
	}
	s = h.create(fence(2, 2))
	if got := h.sh(s, "sort -u big"); got != "old" {
		t.Errorf("there is %q", got)
	}
}

// A hibernated session's files were all synced, even if another process kept its volume
// mounted until the machine ended.
func TestRecoverLeavesTheFilesOfASessionThatSleeps(t *testing.T) {
	h := newCuttable(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo old > f; sleep 0.1")
	point, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.sh(s, "echo new > f")
	h.counting(s)
	release := holdOpen(t)
	h.freeze(s, fence(1, 1))
	h.powerCut(nil)
	release()
	if done := h.recoverFrom(fence(2, 2), point); done != nil {
		t.Errorf("recovered is %+v", done)
	}
	s = h.create(fence(2, 2))
	if p := s.(sandbox.Restored).Processes(); !p.Kept {
		t.Errorf("what ran is lost: %s", p.Lost)
	}
	if got := h.sh(s, "cat f; ls | grep -c found"); !strings.HasPrefix(got, "new\n0") {
		t.Errorf("there is %q", got)
	}
}

// cleared waits until what a stopped sandbox had is cleared away, which is noted.
func (h *fixture) cleared(note string) {
	h.t.Helper()
	for ctx := within(h.t); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(h.session(note)); err == nil {
			return
		}
		if ctx.Err() != nil {
			h.t.Fatalf("there is no note %s", note)
		}
	}
}

// The same is true of one that was stopped.
func TestRecoverLeavesTheFilesOfASessionThatWasStopped(t *testing.T) {
	h := newCuttable(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo old > f; sleep 0.1")
	point, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.sh(s, "echo new > f")
	release := holdOpen(t)
	h.stop(s)
	h.cleared("copied")
	h.powerCut(nil)
	release()
	if done := h.recoverFrom(fence(2, 2), point); done != nil {
		t.Errorf("recovered is %+v", done)
	}
	s = h.create(fence(2, 2))
	if got := h.sh(s, "cat f; ls"); got != "new\nf" {
		t.Errorf("there is %q", got)
	}
	h.powerCut(s) // it is in use again
	if done := h.recoverFrom(fence(3, 3), point); done == nil {
		t.Error("a volume that was in use passes for one that was closed")
	}
}

// Memory does not wake over files that were put back.
func TestRecoveredFilesHaveNoMemoryOverThem(t *testing.T) {
	h := newCuttable(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo old > f; sleep 0.1")
	point, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
	h.sh(s, "echo new > f")
	h.freeze(s, fence(1, 1))
	if err := os.WriteFile(h.session("failed"), []byte("the disk failed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if done := h.recoverFrom(fence(2, 2), point); done == nil || done.Count != 1 {
		t.Errorf("recovered is %+v", done)
	}
	s = h.create(fence(2, 2))
	if p := s.(sandbox.Restored).Processes(); p.Kept || !strings.Contains(p.Lost, "recovered") {
		t.Errorf("what ran is kept: %+v", p)
	}
	if _, err := os.Stat(h.session("image")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the image is still there: %v", err)
	}
}
