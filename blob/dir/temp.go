package dir

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// settle makes a directory under root for what this process is writing and
// holds it, which no other process can take for left behind.
func settle(root string) (*os.File, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	// Only one settles at a time: a directory that is made and not yet held
	// looks left behind.
	alone, err := hold(root, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer letGo(alone)
	if err := sweep(root); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(root, "")
	if err != nil {
		return nil, err
	}
	return hold(path, syscall.LOCK_EX)
}

// sweep removes what is under root and nobody holds: whoever wrote it is dead.
func sweep(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		held, err := hold(path, syscall.LOCK_EX|syscall.LOCK_NB)
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
