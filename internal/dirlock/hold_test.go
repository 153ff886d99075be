package dirlock_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse/internal/dirlock"
)

func TestManyShareWhatNobodyHasAlone(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		held, err := dirlock.Hold(dir, syscall.LOCK_SH|syscall.LOCK_NB)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = held.Close() }()
	}
	if _, err := dirlock.Hold(dir, syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("one who wants it alone was told %v", err)
	}
}

func TestOnlyWhatTheDeadLeftIsCleared(t *testing.T) {
	root := filepath.Join(t.TempDir(), "tmp")
	living, err := dirlock.MkdirTemp(root)
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(root, "dead", "and", "gone")
	if err := os.MkdirAll(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := dirlock.MkdirTemp(root) // which clears
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(root, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("%v are left, %v, want those of the living", left, err)
	}
	if err := errors.Join(living.Close(), other.Close(), dirlock.Clear(root)); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(root, "*")); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
