//go:build linux

package dir_test

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse"
)

func TestAFullDiskMustBeErrFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	root := t.TempDir()
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size=1536k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(root, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, root)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	small, err := s.Put(t.Context(), []byte("small"))
	if err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("large"), 1<<20)
	if _, err := s.Put(t.Context(), large); !errors.Is(err, dormouse.ErrFull) {
		t.Errorf("put = %v, want ErrFull", err)
	}
	if _, _, err := s.PutFrom(t.Context(), bytes.NewReader(large)); !errors.Is(err, dormouse.ErrFull) {
		t.Errorf("put from = %v, want ErrFull", err)
	}
	if _, err := s.Get(t.Context(), dormouse.DigestOf(large)); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("get of what did not fit = %v, want ErrNotFound", err)
	}
	if b, err := s.Get(t.Context(), small); err != nil || string(b) != "small" {
		t.Errorf("get = %q, %v", b, err)
	}
	// What did not fit gave its room back.
	if _, err := s.Put(t.Context(), large[:512<<10]); err != nil {
		t.Errorf("put of what fits: %v", err)
	}
}
