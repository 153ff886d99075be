//go:build unix

package flock_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/internal/flock"
)

func TestALockKeepsOthersOffUntilItsFileIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	try := func(f *os.File, how int, want bool) {
		t.Helper()
		if got, err := flock.TryLock(f, how); got != want || err != nil {
			t.Errorf("locked: %v, %v, want %v", got, err, want)
		}
	}
	one, two, three := open(), open(), open()
	try(one, flock.Shared, true)
	try(two, flock.Shared, true)
	try(three, flock.Exclusive, false)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	locked := make(chan error)
	go func() { locked <- flock.Lock(three, flock.Exclusive) }()
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	try(open(), flock.Shared, false)
	if err := three.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := flock.TryLock(three, flock.Exclusive); err == nil {
		t.Error("a closed file was locked")
	}
}
