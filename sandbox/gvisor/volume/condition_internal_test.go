//go:build linux

package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

// newVolume is a volume of a session that is open, on the machine's own disk.
func newVolume(t *testing.T) Volume {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v := Volume{Session: "sesn_0000000000000000000000000a", Dir: t.TempDir()}
	if err := os.Mkdir(v.Mountpoint(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := makeFileSystem(v.Image(), dormouse.Limits{Disk: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := mountLoop(v.Image(), v.Mountpoint()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v
}

func wantCondition(t *testing.T, v Volume, want sandbox.Condition) {
	t.Helper()
	if got, why, err := v.Condition(); err != nil || got != want {
		t.Errorf("the condition is %q (%s), %v, want %q", got, why, err, want)
	}
}

// A volume that was open when the machine ended says so itself, whatever is noted or
// not noted beside it.
func TestVolumeThatWasNotClosedIsCut(t *testing.T) {
	v := newVolume(t)
	wantCondition(t, v, sandbox.Sound)
	cut := Volume{Session: v.Session, Dir: t.TempDir()}
	if err := copySparse(v.Image(), cut.Image()); err != nil {
		t.Fatal(err)
	}
	wantCondition(t, cut, sandbox.Cut)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	wantCondition(t, v, sandbox.Sound)
}

// So does a plain directory by its note: to end what is left of its sandbox is not to
// close it.
func TestDirectoryThatWasNotClosedIsCut(t *testing.T) {
	v := Volume{Session: "sesn_0000000000000000000000000a", Dir: t.TempDir()}
	if err := errors.Join(os.Mkdir(v.Mountpoint(), 0o700), v.markOpened()); err != nil {
		t.Fatal(err)
	}
	wantCondition(t, v, sandbox.Sound)
	if err := os.WriteFile(v.openedNote(), []byte("the boot before"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCondition(t, v, sandbox.Cut)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	wantCondition(t, v, sandbox.Cut)
	if err := errors.Join(v.markOpened(), v.Close()); err != nil {
		t.Fatal(err)
	}
	wantCondition(t, v, sandbox.Sound)
	if _, err := os.Stat(v.openedNote()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that was closed is noted as open: %v", err)
	}
}

func TestVolumeThatGaveUpItsJournalHasFailed(t *testing.T) {
	v := newVolume(t)
	if err := unix.Mount("", v.Mountpoint(), "", unix.MS_REMOUNT, "abort"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v.Path("file"), nil, 0o600); err == nil { // it notices when it is written to
		t.Error("it was written to")
	}
	wantCondition(t, v, sandbox.Failed)
	if err := v.Sync(); !errors.Is(err, sandbox.ErrFailed) {
		t.Errorf("it is synced with %v, want %v", err, sandbox.ErrFailed)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	wantCondition(t, v, sandbox.Failed)
}

func TestFailedSyncIsNeverBelievedAgain(t *testing.T) {
	v := newVolume(t)
	if err := v.fail(unix.EIO); !errors.Is(err, sandbox.ErrFailed) || !errors.Is(err, unix.EIO) {
		t.Errorf("it failed with %v", err)
	}
	if err := v.Sync(); !errors.Is(err, sandbox.ErrFailed) {
		t.Errorf("it is synced again with %v, want %v", err, sandbox.ErrFailed)
	}
	wantCondition(t, v, sandbox.Failed)
}

// Files in a plain directory cannot say so themselves.
func TestPlainFilesOfAnotherBootAreCut(t *testing.T) {
	v := Volume{Dir: t.TempDir()}
	if err := os.Mkdir(v.Mountpoint(), 0o700); err != nil {
		t.Fatal(err)
	}
	wantCondition(t, v, sandbox.Sound)
	if err := os.WriteFile(filepath.Join(v.Dir, "opened"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCondition(t, v, sandbox.Cut)
}

// The kernel reports a failed write once. A disk that takes no note of it either does not
// make the files sound, for this server or the next.
func TestFailedSyncThatCannotBeNotedIsRemembered(t *testing.T) {
	for name, next := range map[string]bool{"by this server": false, "by the next": true} {
		t.Run(name, func(t *testing.T) {
			v := newVolume(t)
			t.Cleanup(func() { unrecorded.forget(v.Dir) })
			immutable(t, v.Dir, true)
			if err := v.fail(unix.EIO); !errors.Is(err, sandbox.ErrFailed) || !errors.Is(err, unix.EPERM) {
				t.Errorf("it failed with %v", err)
			}
			if next {
				unrecorded.forget(v.Dir)
			}
			wantCondition(t, v, sandbox.Failed)
			if err := v.Sync(); !errors.Is(err, sandbox.ErrFailed) {
				t.Errorf("it is synced again with %v, want %v", err, sandbox.ErrFailed)
			}
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
			if next {
				unrecorded.forget(v.Dir)
			}
			wantCondition(t, v, sandbox.Failed)
			immutable(t, v.Dir, false)
			wantCondition(t, v, sandbox.Failed)
			if _, err := os.Stat(v.failedNote()); err != nil && !next {
				t.Errorf("it is not noted once that is possible: %v", err)
			}
		})
	}
}

// Files in a plain directory have no file system of their own that could be marked.
func TestFailedSyncOfPlainFilesThatCannotBeNotedIsRemembered(t *testing.T) {
	v := Volume{Session: "sesn_0000000000000000000000000a", Dir: t.TempDir()}
	t.Cleanup(func() { unrecorded.forget(v.Dir) })
	if err := os.Mkdir(v.Mountpoint(), 0o700); err != nil {
		t.Fatal(err)
	}
	immutable(t, v.Dir, true)
	if err := v.fail(unix.EIO); !errors.Is(err, sandbox.ErrFailed) {
		t.Errorf("it failed with %v", err)
	}
	if err := v.Sync(); !errors.Is(err, sandbox.ErrFailed) {
		t.Errorf("it is synced again with %v, want %v", err, sandbox.ErrFailed)
	}
	immutable(t, v.Dir, false)
	wantCondition(t, v, sandbox.Failed)
	if _, err := os.Stat(v.failedNote()); err != nil {
		t.Errorf("it is not noted once that is possible: %v", err)
	}
}

// immutable has a directory take no names, not even from root.
func immutable(t *testing.T, dir string, is bool) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		t.Skipf("this disk has no flags: %v", err)
	}
	const immutableFlag = 0x10 // FS_IMMUTABLE_FL
	flags &^= immutableFlag
	if is {
		flags |= immutableFlag
		t.Cleanup(func() { immutable(t, dir, false) })
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Fatal(err)
	}
}
