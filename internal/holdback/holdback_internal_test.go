//go:build linux

package holdback

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What is held back can be written once it is given, and not before.
func TestRoomIsHeldBackUntilItIsGiven(t *testing.T) {
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
	if !r.Give() {
		t.Fatal("nothing is given")
	}
	if _, err := filler.Write(make([]byte, page)); err != nil {
		t.Errorf("room was given, and writing fails: %v", err)
	}
	for r.Give() {
	}
	if r.refill(); r.has() != 0 {
		t.Error("it is taken again from a disk that is full")
	}
	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if r.refill(); r.has() != r.want {
		t.Errorf("%d bytes are held back, want %d", r.has(), r.want)
	}
}
