package dirlock

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dormouse-run/dormouse/internal/flock"
)

// Hold opens a directory and locks it, against other processes as well as our
// own, until it is closed. How is a combination of syscall.LOCK_SH, LOCK_EX and
// LOCK_NB.
func Hold(path string, how int) (*os.File, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := flock.Lock(d, how); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// MkdirTemp makes a directory under root for what this process is writing and locks
// it, so that no other process takes it for abandoned. What dead processes have left
// there is removed.
func MkdirTemp(root string) (*os.File, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	if err := Clear(root); err != nil {
		return nil, err
	}
	// No process may clear meanwhile: a directory that is made and not yet locked
	// looks abandoned.
	alone, err := Hold(root, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() { _ = alone.Close() }()
	path, err := os.MkdirTemp(root, "")
	if err != nil {
		return nil, err
	}
	return Hold(path, syscall.LOCK_EX)
}

// Clear removes what is under root and not locked: its writer is dead.
func Clear(root string) error {
	alone, err := Hold(root, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = alone.Close() }()
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		held, err := Hold(path, syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(path), held.Close()); err != nil {
			return err
		}
	}
	return nil
}
