//go:build linux

package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// TestATurnStartScansOnlyWhatMayHaveChangedAndReadsNoContents: the kernel reports
// every open in the volume. Where nothing could have changed since the last snapshot
// nothing is opened, and otherwise only directories, until a file was changed.
func TestATurnStartScansOnlyWhatMayHaveChangedAndReadsNoContents(t *testing.T) {
	t.Parallel()
	mayMount(t)
	w := newWorld(t, func(s *rig.Server) {
		s.Sandbox = rig.GVisor
		s.Flags = append(s.Flags, "--spares", "0")
	})
	l := w.onVolumes(nil)
	l.run("for d in d1 d2 d3; do mkdir $d && seq 50 | split -l 1 -a 2 -d - $d/f; done; sleep 0.1")
	must(t, l.take("all"))
	upper := filepath.Join(w.Data, "sandbox", "gvisor", "sessions", string(l.ID), "volume", "upper")
	opens := watch(t, upper, "d1", "d2", "d3")

	l.turns("plain")
	if dirs, files := opens(); len(dirs)+len(files) > 0 {
		t.Errorf("nothing could have changed, and %v and %v were opened", dirs, files)
	}
	l.run(":")
	opens()
	l.turns("scans")
	if dirs, files := opens(); !slices.Equal(dirs, []string{".", "d1", "d2", "d3"}) || len(files) > 0 {
		t.Errorf("of what may have changed %v and %v were opened, want every directory and no file", dirs, files)
	}
	l.run("echo other > d2/f07; sleep 0.1")
	opens()
	l.turns("changed")
	if _, files := opens(); !slices.Equal(files, []string{"d2/f07"}) {
		t.Errorf("one file changed, and %v were opened", files)
	}
	log, err := l.Events(w.ctx)
	must(t, err)
	if n := len(only(log, dormouse.SnapshotSkipped)); n != 1 {
		t.Errorf("%d scans found nothing, want one:\n%s", n, types(log))
	}
}

// turns has the session say something, which uses no sandbox.
func (l *lined) turns(id string) {
	l.w.t.Helper()
	must(l.w.t, l.Prompt(l.w.ctx, id, rig.Script("", rig.Say(id))))
	_, err := l.Idle(l.w.ctx)
	must(l.w.t, err)
}

// watch reports what was opened in a directory and some in it since it was asked last.
func watch(t *testing.T, root string, names ...string) func() (dirs, files []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	at := make(map[int32]string)
	for _, name := range append(names, ".") {
		wd, err := unix.InotifyAddWatch(fd, filepath.Join(root, name), unix.IN_OPEN|unix.IN_ACCESS)
		must(t, err)
		at[int32(wd)] = name
	}
	opens := func() (dirs, files []string) {
		buf := make([]byte, 1<<20)
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return nil, nil
		}
		must(t, err)
		for buf = buf[:n]; len(buf) > 0; {
			wd, mask, size := int32(binary.NativeEndian.Uint32(buf)), binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[12:])
			name := filepath.Join(at[wd], string(bytes.TrimRight(buf[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], "\x00")))
			if mask&unix.IN_ISDIR != 0 {
				dirs = append(dirs, name)
			} else {
				files = append(files, name)
			}
			buf = buf[unix.SizeofInotifyEvent+size:]
		}
		slices.Sort(dirs)
		slices.Sort(files)
		return slices.Compact(dirs), slices.Compact(files)
	}
	some := filepath.Join(names[0], "f01")
	if _, err := os.ReadFile(filepath.Join(root, some)); err != nil {
		t.Fatal(err)
	}
	if _, files := opens(); fmt.Sprint(files) != "["+some+"]" {
		t.Fatalf("a file was read, and the kernel says %v", files)
	}
	return opens
}
