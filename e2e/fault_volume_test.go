//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// loopDisk gives a server with gVisor sandboxes a small ext4 of its own.
func loopDisk(t *testing.T, size string, flags ...string) func(*rig.Server) {
	t.Helper()
	mayMount(t)
	return func(s *rig.Server) {
		s.Sandbox = rig.GVisor
		s.Flags = append(s.Flags, flags...)
		image := filepath.Join(filepath.Dir(s.Data), "disk.img")
		must(t, os.MkdirAll(s.Data, 0o700))
		for _, line := range []string{"truncate -s " + size + " " + image, "mkfs.ext4 -q -F " + image, "mount -o loop " + image + " " + s.Data, "chmod 700 " + s.Data} {
			args := strings.Fields(line)
			if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
		t.Cleanup(func() { _ = exec.Command("umount", "-l", s.Data).Run() })
	}
}

// onVolumes makes a session in which commands are run.
func (w *world) onVolumes(o options) *lined {
	w.t.Helper()
	l := &lined{Session: w.createUnseen(o).Session, w: w, snapshots: make(map[dormouse.SnapshotID]string)}
	l.run("true")
	return l
}

// sleeps puts a session to sleep.
func (l *lined) sleeps() {
	l.w.t.Helper()
	must(l.w.t, l.Insist(l.w.ctx, "hibernate", nil, func(s rig.Shown) bool { return s.Sandbox.Phase == "cold" }))
}

const fillsUp = `dd if=/dev/urandom of=big bs=1M 2>&1 | grep -o 'No space left on device'; sync; sha256sum big`

// TestB41: what a tool call has written is there, even if another session, or another
// process of the host, has filled the disk since.
func TestB41AFullDiskDestroysNoAcknowledgedFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, loopDisk(t, "240M", "--snapshots", "off", "--spares", "0"))
	quiet, greedy := w.onVolumes(nil), w.onVolumes(nil)
	for i := range 5 {
		quiet.run(fmt.Sprintf("echo line %d > file%d", i, i))
	}
	filled := greedy.run(fillsUp)
	if !strings.Contains(filled, "No space left on device") {
		t.Errorf("filling the disk printed %q", filled)
	}
	quiet.run("echo line 5 > file5") // there is some headroom for everybody
	free := w.fill()
	w.drain()
	quiet.run("echo line 6 > file6")
	free()
	for _, l := range []*lined{quiet, greedy} {
		l.sleeps()
	}
	if got, want := quiet.run("cat file?"), "line 0\nline 1\nline 2\nline 3\nline 4\nline 5\nline 6\n"; got != want {
		t.Errorf("after sleep and wake the files hold %q, not %q", got, want)
	}
	if got := greedy.run("sha256sum big; rm big"); !strings.HasSuffix(filled, got) {
		t.Errorf("what filled the disk is %q, and was %q", got, filled)
	}
	quiet.run("head -c 40000000 /dev/zero > zeros; rm zeros") // what was freed can be had
	if w.Lives() != 1 {
		t.Errorf("it took %d servers, want one", w.Lives())
	}
}

// TestB42: on a disk without a byte left people can do what frees space.
func TestB42OnAFullDiskRoomCanBeMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, loopDisk(t, "240M", "--spares", "0"))
	ended, deleted, kept := w.onVolumes(nil), w.onVolumes(nil), w.onVolumes(nil)
	for n := range 3 {
		kept.run(fmt.Sprintf("echo %d > file", n))
		must(t, kept.take(fmt.Sprint(n)))
	}
	deleted.run("head -c 20000000 /dev/urandom > big")
	free := w.fill()
	refused(t, kept.Command(w.ctx, "prompts", options{"content": "no space"}), http.StatusInsufficientStorage, "full")
	must(t, ended.Command(w.ctx, "terminate", nil))
	var all struct {
		Snapshots []listedSnapshot `json:"snapshots"`
	}
	must(t, kept.Get(w.ctx, kept.Path("/snapshots"), &all))
	if len(all.Snapshots) != 3 {
		t.Fatalf("%d snapshots, want 3", len(all.Snapshots))
	}
	oldest := all.Snapshots[len(all.Snapshots)-1]
	if _, err := w.Once(w.ctx, http.MethodDelete, kept.Path("/snapshots/"+oldest.ID), nil, nil); err != nil {
		t.Errorf("a snapshot cannot be deleted: %v", err)
	}
	if _, err := w.Once(w.ctx, http.MethodPost, kept.Path("/snapshots/prune"), options{"keep": 1}, nil); err != nil {
		t.Errorf("snapshots cannot be pruned: %v", err)
	}
	must(t, deleted.Delete(w.ctx))
	// The space of one session is enough for the others to go on.
	w.until("there is space", func() bool { return kept.Command(w.ctx, "prompts", options{"content": "hello", "id": "hello"}) == nil })
	kept.has("2", "after space was freed")
	free()
	if shown, err := ended.Show(w.ctx); err != nil || shown.Phase != dormouse.PhaseTerminated || w.Lives() != 1 {
		t.Errorf("it is %s, %v, after %d servers", shown.Phase, err, w.Lives())
	}
}

// TestB43: a session that sleeps when the disk is full wakes when there is space, with
// what ran in it.
func TestB43WhatSleepsOnAFullDiskWakesWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, loopDisk(t, "240M", "--snapshots", "off", "--spares", "0"))
	l := w.onVolumes(nil)
	l.run("echo kept > file; setsid sleep 1000 >/dev/null 2>&1 & echo $! > pid")
	l.sleeps()
	free := w.fill()
	w.drain()
	result, err := l.Ask(w.ctx, rig.Asked{ClientID: "early", Command: "cat file"})
	must(t, err)
	if !strings.Contains(result.Error, "no space left") {
		t.Errorf("a command is answered with %+v", result)
	}
	free()
	if got := l.run("cat file; kill -0 $(cat pid) && echo runs"); got != "kept\nruns\n" {
		t.Errorf("it woke with %q", got)
	}
	if w.Lives() != 1 {
		t.Errorf("it took %d servers, want one", w.Lives())
	}
}

// The same where it is files that the disk has no room for.
func TestB43WhatSleepsOnADiskFullOfFilesWakesWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, loopDisk(t, "240M", "--snapshots", "off", "--spares", "0"))
	l := w.onVolumes(nil)
	l.run("setsid sh -c 'echo $$ >/tmp/pid; exec sleep 1000' >/dev/null 2>&1 & sleep 1")
	l.sleeps()
	free := w.fillInodes()
	result, err := l.Ask(w.ctx, rig.Asked{ClientID: "early", Command: "true"})
	must(t, err)
	if !strings.Contains(result.Error, "no space left") {
		t.Errorf("a command is answered with %+v", result)
	}
	free()
	if got := l.run("kill -0 $(cat /tmp/pid) && echo runs"); got != "runs\n" {
		t.Errorf("it woke with %q", got)
	}
}

// drain takes a little away from what fills the disk, with which the database goes on.
func (w *world) drain() {
	w.t.Helper()
	name := filepath.Join(w.Data, "filler")
	at, err := os.Stat(name)
	must(w.t, err)
	must(w.t, os.Truncate(name, at.Size()-1<<20))
}
