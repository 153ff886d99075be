//go:build linux

package gvisor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
)

// cutHouse is a house whose sessions lie on a disk that forgets what was not synced.
type cutHouse struct {
	*fixture
	disk *powercut.Disk
}

func newCutHouse(t *testing.T) *cutHouse {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and /dev/fuse")
	}
	h := &cutHouse{fixture: &fixture{t: t, dir: filepath.Join(t.TempDir(), "data")}}
	for _, dir := range []string{h.sessions(), h.below()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		cleared(t, h.dir)
		h.detach()
	})
	h.powerOn()
	return h
}

func (h *cutHouse) sessions() string { return filepath.Join(h.dir, "sessions") }
func (h *cutHouse) below() string    { return filepath.Join(filepath.Dir(h.dir), "disk") }

func (h *cutHouse) powerOn() {
	h.t.Helper()
	h.Driver = open(h.t, h.dir) // which mounts the directory over itself
	var err error
	if h.disk, err = powercut.Mount(h.below(), h.sessions()); err != nil {
		h.t.Fatal(err)
	}
}

// detach takes the disk away, if the driver has not done so.
func (h *cutHouse) detach() {
	h.t.Helper()
	if err := unix.Unmount(h.sessions(), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		h.t.Error(err)
	}
}

// cut ends the machine: its disk, and everything that runs and is mounted on it.
func (h *cutHouse) cut(s sandbox.Sandbox, keep powercut.Keep) {
	h.t.Helper()
	if err := h.disk.Cut(keep); err != nil {
		h.t.Fatal(err)
	}
	if s != nil {
		signal(h.t, h.dir, s.Handle(), syscall.SIGKILL)
		_ = s.Close()
	}
	for _, dir := range []string{filepath.Join(h.dir, "boxes"), h.sessions()} {
		if err := gvisor.UnmountBelow(dir); err != nil {
			h.t.Fatal(err)
		}
	}
	// Others of this machine may still hold on to what was mounted. They write no more.
	h.detach()
	h.powerOn()
}

// recover brings back what the cut took of a snapshot.
func (h *cutHouse) recover(f runner.Fence, point string) *sandbox.Recovered {
	h.t.Helper()
	r := sandbox.Recovery{
		Fence: f, Snapshot: "snap_1",
		Newest: func(context.Context) ([]string, func(), error) { return []string{point}, func() {}, nil },
	}
	if point == "" {
		r.Newest = func(context.Context) ([]string, func(), error) { return nil, func() {}, nil }
	}
	done, err := h.Recover(within(h.t), r)
	if err != nil {
		h.t.Fatal(err)
	}
	return done
}

func (h *cutHouse) sync(_ sandbox.Sandbox, newest dormouse.SnapshotID) {
	h.t.Helper()
	if err := h.Sync(within(h.t), session, 0, newest); err != nil {
		h.t.Fatal(err)
	}
}

// A snapshot that was recorded, and what was synced after it, are what a session has at
// least after a power cut, in whatever order the disk has written the rest.
func TestWorkspaceIsNotBehindItsSnapshotAfterAPowerCut(t *testing.T) {
	for name, keep := range map[string]powercut.Keep{
		"nothing else was written": nil,
		"half of the rest was":     func(u powercut.Unsynced) int { return powercut.PageSize * int(u.Page%2) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newCutHouse(t)
			s := h.create(fence(1, 1))
			h.sh(s, "echo one > log; mkdir d; echo of the snapshot > d/changed; echo 1 > d/gone; echo 1 > d/lost; sleep 0.1")
			point, _ := h.mustSnapshot(s, fence(1, 1), sandbox.Workspace{}, "", "snap_1")
			h.sh(s, "echo by somebody > d/changed; rm d/gone; sleep 0.1")
			h.sync(s, "snap_1")
			h.sh(s, "echo two >> log; rm d/lost; head -c 3000000 /dev/urandom > new")
			h.cut(s, keep)

			if _, err := h.Create(within(t), sandbox.Spec{Fence: fence(2, 2)}); !errors.Is(err, sandbox.ErrUnsound) {
				t.Errorf("files that are not recovered are used: %v", err)
			}
			done := h.recover(fence(2, 2), point)
			if done == nil || done.Condition != sandbox.Cut || done.Since.IsZero() {
				t.Fatalf("recovered is %+v", done)
			}
			if again := h.recover(fence(2, 2), point); again == nil || again.ID != done.ID {
				t.Errorf("before it is told, recovered is %+v", again)
			}
			if err := h.ForgetRecovered(*done); err != nil {
				t.Fatal(err)
			}
			if again := h.recover(fence(2, 2), point); again != nil {
				t.Errorf("after it was told, recovered is %+v", again)
			}
			s = h.create(fence(2, 2))
			if got := h.sh(s, "head -n1 log; cat d/changed; cat d/lost"); got != "one\nby somebody\n1" {
				t.Errorf("there is %q", got)
			}
			if got := h.sh(s, "ls d"); strings.Contains(got, "gone") || strings.Contains(got, "changed.found") {
				t.Errorf("in d there is %q", got)
			}
		})
	}
}

// Files are synced also by a server that has not reached their sandbox, and after it died.
func TestFilesAreSyncedWithoutTheirSandbox(t *testing.T) {
	for name, dies := range map[string]bool{"it is not reached": false, "it has died": true} {
		t.Run(name, func(t *testing.T) {
			h := newCutHouse(t)
			s := h.create(fence(1, 1))
			h.sh(s, "echo written > file")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if dies {
				signal(t, h.dir, s.Handle(), syscall.SIGKILL)
			}
			h.sync(s, "")
			h.cut(s, nil)
			if done := h.recover(fence(2, 2), ""); done == nil || done.Condition != sandbox.Cut {
				t.Errorf("recovered is %+v", done)
			}
			if got := h.sh(h.create(fence(2, 2)), "cat file"); got != "written" {
				t.Errorf("there is %q", got)
			}
		})
	}
}

// What a sandbox sleeps with is on the disk before it is ended: its memory, and the files
// that belong to it.
func TestSleepSurvivesAPowerCut(t *testing.T) {
	h := newCutHouse(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo before > file; (while sleep 0.05; do date +%N >> ticks; done) >/dev/null 2>&1 & sleep 0.3")
	if err := errors.Join(s.Close(), h.Freeze(within(t), s.Handle(), fence(1, 1))); err != nil {
		t.Fatal(err)
	}
	h.cut(nil, nil)
	if done := h.recover(fence(2, 2), ""); done != nil {
		t.Errorf("files of a session that sleeps were recovered: %+v", done)
	}
	s = h.create(fence(2, 2))
	if p := s.(sandbox.Restored).Processes(); !p.Kept {
		t.Errorf("what ran is lost: %s", p.Lost)
	}
	if got := strings.Fields(h.sh(s, "cat file; a=$(wc -l <ticks); sleep 1; test $a -lt $(wc -l <ticks) && echo runs")); !slices.Equal(got, []string{"before", "runs"}) {
		t.Errorf("there is %q", got)
	}
}
