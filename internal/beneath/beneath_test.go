//go:build linux

package beneath_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

func open(t *testing.T) (dir string, d beneath.Dir) {
	t.Helper()
	dir = t.TempDir()
	d, err := beneath.At(dir).Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return dir, d
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// at once fails a test in which something waits.
func atOnce(t *testing.T, do func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("it waits")
		return nil
	}
}

func TestNothingButPlainFilesBeneathIsRead(t *testing.T) {
	dir, d := open(t)
	outside := filepath.Join(t.TempDir(), "canary")
	write(t, outside, "canary")
	write(t, filepath.Join(dir, "plain"), "x")
	write(t, filepath.Join(dir, "sub/plain"), "x")
	link := func(name, to string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("to-zero", "/dev/zero")
	link("to-canary", outside)
	link("to-kmsg", "/dev/kmsg")
	link("to-dir", filepath.Dir(outside))
	link("to-plain", "plain")
	link("to-self", "/proc/self/fd/0")
	link("to-sub", "sub")
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if os.Geteuid() == 0 {
		if err := unix.Mknod(filepath.Join(dir, "zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"plain", "sub/plain", "./sub/../plain"} {
		f, err := d.Regular(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, err := io.ReadAll(f); string(b) != "x" || err != nil {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
		_ = f.Close()
	}
	for _, name := range []string{
		"to-zero", "to-canary", "to-kmsg", "to-dir", "to-dir/canary", "to-plain", "to-sub/plain", "to-self", "fifo", "socket", "zero", "sub", ".",
		"../canary", "sub/../../canary", outside, "missing", "", "plain/", "\x00", strings.Repeat("x", 5000),
	} {
		if err := atOnce(t, func() error {
			f, err := d.Regular(name)
			if err == nil {
				_ = f.Close()
			}
			return err
		}); err == nil {
			t.Errorf("%.40q was opened", name)
		} else if len(err.Error()) > 1000 || strings.Contains(err.Error(), "\x00") {
			t.Errorf("%.40q is refused with %q", name, err)
		}
	}
}

func TestWhatIsSwappedDuringUseLeadsNowhere(t *testing.T) {
	dir, d := open(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "file"), "canary")
	write(t, filepath.Join(dir, "real/file"), "x")
	way, other := filepath.Join(dir, "way"), filepath.Join(dir, "other")
	if err := errors.Join(os.Mkdir(way, 0o755), os.Symlink(outside, other)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(way, "file"), "x")
	stop, swapping := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swapping)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, way, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
			}
		}
	}()
	read := 0
	for range 20000 {
		f, err := d.Regular("way/file")
		if err != nil {
			continue
		}
		b, _ := io.ReadAll(f)
		_ = f.Close()
		if string(b) != "x" {
			t.Fatalf("read %q", b)
		}
		read++
	}
	close(stop)
	<-swapping
	if read == 0 {
		t.Error("nothing was ever read")
	}
}

func TestNoOtherFileSystemIsEntered(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root mounts; CI is root
	}
	dir, d := open(t)
	at := filepath.Join(dir, "mounted")
	if err := errors.Join(os.Mkdir(at, 0o755), unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	write(t, filepath.Join(at, "file"), "x")
	for _, name := range []string{"mounted/file", "mounted"} {
		if f, err := d.At(name, unix.O_RDONLY); !errors.Is(err, unix.EXDEV) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

func TestNamesAreTakenOnlyUpToABound(t *testing.T) {
	dir, d := open(t)
	for i := range 10 {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "")
	}
	if _, err := d.Names(9); !errors.Is(err, beneath.ErrTooMany) {
		t.Errorf("ten names, nine wanted: %v", err)
	}
	again, err := beneath.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if names, err := again.Names(10); err != nil || len(names) != 10 {
		t.Errorf("ten names: %q, %v", names, err)
	}
}

func TestATreeThatIsALinkIsNotOpened(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if _, err := beneath.At(link).Open(); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened: %v", err)
	}
}

func TestATreeIsRemovedHoweverDeepItIs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	outside := filepath.Join(t.TempDir(), "canary")
	write(t, outside, "canary")
	write(t, filepath.Join(dir, "a/b/file"), "x")
	if err := errors.Join(os.Symlink(filepath.Dir(outside), filepath.Join(dir, "a/out")), os.Symlink("a", filepath.Join(dir, "in"))); err != nil {
		t.Fatal(err)
	}
	// Deeper than a path can say, and than this process may have files open.
	const depth = 3000
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for i := 0; err == nil && i < depth; i++ {
		var next int
		if err = unix.Mkdirat(at, "deep", 0o755); err == nil {
			next, err = unix.Openat(at, "deep", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		err = errors.Join(err, unix.Close(at))
		at = next
	}
	if err = errors.Join(err, unix.Close(at)); err != nil {
		t.Fatal(err)
	}
	most := 0
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			default:
				open, _ := os.ReadDir("/proc/self/fd")
				most = max(most, len(open))
			}
		}
	}()
	err = beneath.At(dir).Remove()
	close(stop)
	<-watched
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if b, err := os.ReadFile(outside); string(b) != "canary" {
		t.Errorf("the canary is %q, %v", b, err)
	}
	if most > 200 {
		t.Errorf("%d descriptors were open", most)
	}
	if err := beneath.At(dir).Remove(); err != nil {
		t.Errorf("what is not there: %v", err)
	}
}
