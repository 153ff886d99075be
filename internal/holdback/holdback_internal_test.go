//go:build linux

package holdback

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The reserve can be written once it is released, and not before.
func TestSpaceIsReservedUntilItIsReleased(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	r, err := Open(filepath.Join(dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = filler.Close() })
	const page = 4096
	for err == nil {
		_, err = filler.Write(make([]byte, page))
	}
	if _, err := filler.Write(make([]byte, page)); err == nil {
		t.Fatal("the disk is not full")
	}
	if !r.Release() {
		t.Fatal("nothing is released")
	}
	if _, err := filler.Write(make([]byte, page)); err != nil {
		t.Errorf("space was released, and writing fails: %v", err)
	}
	for r.Release() {
	}
	if r.refill(); r.size() != 0 {
		t.Error("it is reserved again on a full disk")
	}
	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if r.refill(); r.size() != r.want {
		t.Errorf("%d bytes are reserved, want %d", r.size(), r.want)
	}
}
