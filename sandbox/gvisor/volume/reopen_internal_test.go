//go:build linux

package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

const failing = dormouse.SessionID("sesn_0000000000000000000000000a")

// newFailing is the volume of a session that is closed and has failed, with a file in the
// home directory.
func newFailing(t *testing.T) (*testStore, Volume) {
	t.Helper()
	d := newDisk(t, 256)
	v := d.volumeOf(failing)
	must(t, d.Open(v, Volume{Dir: d.path("none")}, d.limits))
	must(t, os.WriteFile(filepath.Join(v.Home().Host(), "mine"), []byte("mine"), 0o600))
	must(t, errors.Join(v.Sync(), v.SyncName()))
	if err := v.fail(unix.EIO); !errors.Is(err, sandbox.ErrFailed) {
		t.Fatal(err)
	}
	must(t, d.Close(v))
	return d, v
}

// recovery is from a snapshot with one file.
func recovery(t *testing.T) sandbox.Recovery {
	t.Helper()
	point := filepath.Join(t.TempDir(), "point")
	must(t, os.Mkdir(point, 0o755))
	must(t, os.WriteFile(filepath.Join(point, "kept"), []byte("of the snapshot"), 0o600))
	return sandbox.Recovery{
		Fence:  runner.Fence{Session: failing, Generation: 1, Epoch: 1},
		Newest: func(context.Context) ([]string, func(), error) { return []string{point}, func() {}, nil },
	}
}

// wantRecovered opens files that were recovered: they are those of the snapshot, and in a
// volume.
func wantRecovered(t *testing.T, d *testStore, v Volume, home bool) {
	t.Helper()
	must(t, d.Open(v, Volume{Dir: d.path("none")}, d.limits))
	defer func() { must(t, d.Close(v)) }()
	if raw, err := os.ReadFile(filepath.Join(v.Upper(0).Host(), "kept")); err != nil || string(raw) != "of the snapshot" {
		t.Errorf("of the snapshot there is %q, %v", raw, err)
	}
	if _, err := os.Stat(filepath.Join(v.Home().Host(), "mine")); (err == nil) != home {
		t.Errorf("in the home directory there is %v, want it there: %t", err, home)
	}
	if there, err := mount.Is(v.Mountpoint()); err != nil || !there {
		t.Errorf("the files lie in a plain directory, %v", err)
	}
	if left := left(t, v, ".new", ".fresh", ".copy"); len(left) > 0 {
		t.Errorf("there is still %v", left)
	}
}

func left(t *testing.T, v Volume, ends ...string) (left []string) {
	t.Helper()
	entries, err := os.ReadDir(v.Dir)
	must(t, err)
	for _, e := range entries {
		if slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(e.Name(), end) }) {
			left = append(left, e.Name())
		}
	}
	return left
}

// fakeTool has a script run in the place of a program.
func fakeTool(t *testing.T, name, script string) (restore func()) {
	t.Helper()
	dir, before := t.TempDir(), toolDirs
	must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	toolDirs = append([]string{dir}, before...)
	restore = func() { toolDirs = before }
	t.Cleanup(restore)
	return restore
}

// ruin takes away everything that a file system is found by.
func ruin(t *testing.T, v Volume) {
	t.Helper()
	at, err := os.Stat(v.Image())
	must(t, err)
	must(t, os.Truncate(v.Image(), 0))
	must(t, os.Truncate(v.Image(), at.Size()))
}

// A check that was killed, for want of memory for one, or could not be made, says nothing
// of the volume.
func TestVolumeIsNotSetAsideBecauseItCouldNotBeChecked(t *testing.T) {
	for name, script := range map[string]string{
		"killed":               "kill -9 $$",
		"canceled":             "exit 32",
		"canceled with errors": "exit 36",
		"no library":           "exit 127",
		"shared library":       "exit 128",
		"out of memory":        "exit 8",
		"wrong usage":          "exit 16",
	} {
		t.Run(name, func(t *testing.T) {
			d, v := newFailing(t)
			restore := fakeTool(t, "e2fsck", script)
			before, err := os.Stat(v.Image())
			must(t, err)
			if done, err := d.Recover(t.Context(), recovery(t)); err == nil {
				t.Errorf("what could not be checked is recovered: %+v", done)
			}
			after, err := os.Stat(v.Image())
			if err != nil || !os.SameFile(before, after) || len(v.asides()) > 0 {
				t.Errorf("the volume is another one, %v; aside there is %v", err, v.asides())
			}
			restore()
			done, err := d.Recover(t.Context(), recovery(t))
			if err != nil || done == nil || done.Aside != "" || strings.Contains(done.Reason, notReadable) {
				t.Fatalf("recovered is %+v, %v", done, err)
			}
			wantRecovered(t, d, v, true)
		})
	}
}

func TestOnlyErrorsOfTheFileSystemItselfSayThatItCannotBeRead(t *testing.T) {
	for _, err := range []error{unix.EUCLEAN, unix.EINVAL, unix.EBADMSG} {
		if err := asCorrupt(fmt.Errorf("mount: %w", err)); !errors.Is(err, errCorrupt) {
			t.Errorf("%v does not", err)
		}
	}
	for _, err := range []error{nil, unix.ENOMEM, unix.EIO, unix.EMFILE, unix.EBUSY, unix.ENOSPC, unix.EPERM, context.Canceled} {
		if err := asCorrupt(err); errors.Is(err, errCorrupt) {
			t.Errorf("%v does", err)
		}
	}
	// To have no device for it is not to mount it.
	if err := mountLoop(t.TempDir(), t.TempDir()); err == nil || errors.Is(err, errCorrupt) {
		t.Errorf("a volume that is not attached is mounted with %v", err)
	}
}

func TestVolumeBeyondRepairIsSetAside(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, Volume){
		"no file system":               ruin,
		"errors that cannot be mended": func(t *testing.T, _ Volume) { t.Helper(); fakeTool(t, "e2fsck", "exit 4") },
		"no file":                      func(t *testing.T, v Volume) { t.Helper(); must(t, os.Truncate(v.Image(), 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			d, v := newFailing(t)
			before, err := os.Stat(v.Image())
			must(t, err)
			damage(t, v)
			done, err := d.Recover(t.Context(), recovery(t))
			if err != nil || done == nil || done.Condition != sandbox.Failed || !strings.Contains(done.Reason, notReadable) {
				t.Fatalf("recovered is %+v, %v", done, err)
			}
			if aside, err := os.Stat(done.Aside); err != nil || !os.SameFile(aside, before) {
				t.Errorf("aside at %q there is another one, %v", done.Aside, err)
			}
			wantRecovered(t, d, v, false)
		})
	}
}

// A process that is killed while it sets a volume aside leaves the old one or the new one
// in its place, and the next process reports where the old one is.
func TestVolumeThatIsSetAsideIsKeptWhoeverDies(t *testing.T) {
	steps := 1
	for n := 0; n <= steps; n++ {
		t.Run(fmt.Sprintf("after %d steps", n), func(t *testing.T) {
			d, v := newFailing(t)
			before, err := os.Stat(v.Image())
			must(t, err)
			ruin(t, v)
			r := &sandbox.Recovered{ID: "one", Session: failing, Condition: sandbox.Failed, Reason: "it failed"}
			all := v.replaceSteps(r, 0, errCorrupt)
			steps = len(all)
			for _, step := range all[:n] {
				must(t, step())
				if at, err := os.Stat(v.Image()); err != nil || at.Size() != before.Size() {
					t.Fatalf("in its place there is %+v, %v", at, err)
				}
			}
			if _, err := d.openAs(v); !errors.Is(err, sandbox.ErrUnsound) {
				t.Errorf("files that are not recovered are used: %v", err)
			}
			done, err := d.Recover(t.Context(), recovery(t))
			if err != nil || done == nil || strings.Count(done.Reason, notReadable) != 1 {
				t.Fatalf("recovered is %+v, %v", done, err)
			}
			if aside, err := os.Stat(done.Aside); err != nil || !os.SameFile(aside, before) || len(v.asides()) != 1 {
				t.Errorf("aside at %q there is another one, %v; all are %v", done.Aside, err, v.asides())
			}
			wantRecovered(t, d, v, false)
		})
	}
}

func (d *testStore) openAs(v Volume) (Volume, error) {
	return v, d.Open(v, Volume{Dir: d.path("none")}, d.limits)
}

// A session whose files were in a volume never goes on in a plain directory, where nothing
// limits them, nor with an empty volume without a report of it.
func TestVolumeThatIsGoneIsReplacedAndTold(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, Volume){
		"renamed by a program before this one": func(t *testing.T, v Volume) {
			t.Helper()
			must(t, errors.Join(os.Rename(v.Image(), v.Image()+asideName+"20260102T030405Z"), os.Remove(v.madeNote())))
		},
		"removed by somebody": func(t *testing.T, v Volume) {
			t.Helper()
			must(t, errors.Join(os.Remove(v.Image()), os.Remove(v.failedNote())))
		},
		"removed while it was cut off": func(t *testing.T, v Volume) {
			t.Helper()
			must(t, errors.Join(os.Remove(v.Image()), os.Rename(v.failedNote(), v.cutNote()), os.Remove(v.madeNote())))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, v := newFailing(t)
			leave(t, v)
			if _, err := d.openAs(v); !errors.Is(err, sandbox.ErrUnsound) {
				t.Errorf("a session without its volume goes on: %v", err)
			}
			done, err := d.Recover(t.Context(), recovery(t))
			if err != nil || done == nil || done.Condition != sandbox.Failed || !strings.Contains(done.Reason, "its volume is gone") {
				t.Fatalf("recovered is %+v, %v", done, err)
			}
			if all := v.asides(); len(all) > 0 && done.Aside != all[0] {
				t.Errorf("aside is %q, want %q", done.Aside, all[0])
			}
			wantRecovered(t, d, v, false)
		})
	}
}

// Where volumes cannot be made any more, that is an error.
func TestVolumeThatIsGoneIsNoPlainDirectory(t *testing.T) {
	d, v := newFailing(t)
	must(t, os.Remove(v.Image()))
	restore := fakeTool(t, "mkfs.ext4", "exit 1")
	if done, err := d.Recover(t.Context(), recovery(t)); err == nil {
		t.Errorf("it was recovered to nowhere: %+v", done)
	}
	if _, err := d.openAs(v); !errors.Is(err, sandbox.ErrUnsound) {
		t.Errorf("a session without its volume goes on: %v", err)
	}
	restore()
	if _, err := d.Recover(t.Context(), recovery(t)); err != nil {
		t.Fatal(err)
	}
	wantRecovered(t, d, v, false)
}

// A file system does not say any more that it has met errors once it is repaired; that its
// files are to be compared with the snapshot stays known.
func TestRepairThatWasCutOffIsNotForgotten(t *testing.T) {
	d, v := newFailing(t)
	must(t, os.Remove(v.failedNote()))
	must(t, mountLoop(v.Image(), v.Mountpoint()))
	must(t, v.abort())
	must(t, v.Close())
	must(t, v.clearFailure())
	wantCondition(t, v, sandbox.Failed)
	r := recovery(t)
	newest := r.Newest
	r.Newest = func(context.Context) ([]string, func(), error) { return nil, nil, unix.EIO }
	if _, err := d.Recover(t.Context(), r); !errors.Is(err, unix.EIO) {
		t.Fatalf("it was recovered with %v", err)
	}
	wantCondition(t, v, sandbox.Failed)
	r.Newest = newest
	if done, err := d.Recover(t.Context(), r); err != nil || done == nil {
		t.Fatalf("recovered is %+v, %v", done, err)
	}
	wantRecovered(t, d, v, true)
}

// stranger is a process with mounts of its own, which it has from this one: as a service
// of the machine may.
func stranger(t *testing.T) {
	t.Helper()
	cmd := exec.Command("unshare", "-m", "sleep", "300")
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		must(t, err)
		if string(name) == "sleep\n" {
			return
		}
		must(t, sleep.For(t.Context(), time.Millisecond))
	}
}

// newHeld is the volume of a session that a stranger holds on to.
func newHeld(t *testing.T) (*testStore, Volume) {
	t.Helper()
	d := newDisk(t, 256)
	v := d.volumeOf(failing)
	must(t, d.Open(v, Volume{Dir: d.path("none")}, d.limits))
	must(t, os.WriteFile(filepath.Join(v.Home().Host(), "mine"), []byte("mine"), 0o600))
	must(t, errors.Join(v.Sync(), v.SyncName()))
	stranger(t)
	return d, v
}

func TestRecoveryOfAFailedVolumeDoesNotWaitForStrangers(t *testing.T) {
	for name, fail := range map[string]func(*testing.T, Volume){
		"it gave up its journal": func(t *testing.T, v Volume) { t.Helper(); must(t, v.abort()) },
		"it has met errors": func(t *testing.T, v Volume) {
			t.Helper()
			var at unix.Stat_t
			must(t, unix.Stat(v.Mountpoint(), &at))
			must(t, os.WriteFile(fmt.Sprintf("/sys/fs/ext4/loop%d/trigger_fs_error", unix.Minor(at.Dev)), []byte("1"), 0o600))
			for v.aborted() == nil { // the kernel counts it a moment later
				must(t, sleep.For(t.Context(), time.Millisecond))
			}
		},
		"a sync failed": func(_ *testing.T, v Volume) { _ = v.fail(unix.EIO) },
		"it is beyond repair": func(t *testing.T, v Volume) {
			t.Helper()
			_ = v.fail(unix.EIO)
			fakeTool(t, "e2fsck", "exit 4")
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, v := newHeld(t)
			fail(t, v)
			wantCondition(t, v, sandbox.Failed)
			must(t, d.Close(v))
			wantCondition(t, v, sandbox.Failed)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			done, err := d.Recover(ctx, recovery(t))
			if err != nil || done == nil || done.Condition != sandbox.Failed {
				t.Fatalf("recovered is %+v, %v", done, err)
			}
			wantRecovered(t, d, v, done.Aside == "")
			wantCondition(t, v, sandbox.Sound)
		})
	}
}

// The copy that is recovered instead needs room, which is waited for like all room.
func TestRecoveryOfAHeldVolumeWaitsForRoom(t *testing.T) {
	d, v := newHeld(t)
	must(t, os.WriteFile(filepath.Join(v.Home().Host(), "large"), make([]byte, 10<<20), 0o600))
	must(t, v.Sync())
	_ = v.fail(unix.EIO)
	must(t, d.Close(v))
	on, err := statDisk(d.dir)
	must(t, err)
	f, err := os.Create(d.path("others"))
	must(t, err)
	must(t, errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, on.free-(24<<20)), f.Close()))
	if _, err := d.Recover(t.Context(), recovery(t)); !errors.Is(err, dormouse.ErrFull) {
		t.Errorf("without room it was recovered with %v, want %v", err, dormouse.ErrFull)
	}
	must(t, os.Remove(d.path("others")))
	done, err := d.Recover(t.Context(), recovery(t))
	if err != nil || done == nil || done.Aside != "" {
		t.Fatalf("recovered is %+v, %v", done, err)
	}
	wantRecovered(t, d, v, true)
}

// What the machine remembers of a disk that failed may never have been there.
func TestCopyOfAHeldVolumeIsWhatTheDiskHas(t *testing.T) {
	d := newDisk(t, 256)
	const block = 4096
	f, err := os.Create(d.path("file"))
	must(t, err)
	defer func() { _ = f.Close() }()
	_, err = f.WriteAt(bytes.Repeat([]byte("remembered"), block), 1<<20)
	must(t, errors.Join(err, f.Sync()))
	var at unix.Stat_t
	must(t, unix.Stat(f.Name(), &at))
	dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", unix.Minor(at.Dev)), os.O_WRONLY|unix.O_DIRECT|unix.O_SYNC, 0)
	must(t, err)
	defer func() { _ = dev.Close() }()
	buf, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	copy(buf, "of the disk")
	size := 1024
	if st := new(unix.Statfs_t); unix.Statfs(d.dir, st) == nil {
		size = int(st.Bsize)
	}
	first := (1 << 20) / size
	must(t, ioctlBlock(f, &first))
	_, err = dev.WriteAt(buf, int64(first)*int64(size))
	must(t, err)

	got := make([]byte, len("of the disk"))
	if _, err := f.ReadAt(got, 1<<20); err != nil || !strings.HasPrefix(string(got), "remembered") {
		t.Skipf("the machine remembers nothing: %q, %v", got, err)
	}
	must(t, copyFromDisk(t.Context(), f, d.path("copy")))
	raw, err := os.ReadFile(d.path("copy"))
	must(t, err)
	if got := string(raw[1<<20:][:len("of the disk")]); got != "of the disk" || len(raw) != 1<<20+10*block {
		t.Errorf("the copy has %q and %d bytes", got, len(raw))
	}
}

// ioctlBlock says where on the disk a block of a file is.
func ioctlBlock(f *os.File, block *int) error {
	const fibmap = 1
	n := int32(*block)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fibmap, uintptr(unsafe.Pointer(&n))); errno != 0 {
		return errno
	}
	*block = int(n)
	return nil
}
