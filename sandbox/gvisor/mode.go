//go:build linux

package gvisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// What is seen inside a sandbox has the modes that it has everywhere. The server
// keeps what is its own from everybody else by its umask, which must not show there.
const (
	dirMode  fs.FileMode = 0o755
	fileMode fs.FileMode = 0o644
)

// makeDirs is os.MkdirAll for a directory that is seen inside. Those that are there
// already stay as they are: whoever is inside may have changed them.
func makeDirs(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDirs(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		return os.Chmod(dir, dirMode)
	}
	if at, statErr := os.Stat(dir); statErr == nil && at.IsDir() {
		return nil
	}
	return err
}

// writeShown is os.WriteFile for a file that is seen inside.
func writeShown(name string, data []byte) error {
	if err := os.WriteFile(name, data, 0o600); err != nil { //nolint:gosec // in a tree of our own
		return err
	}
	return os.Chmod(name, fileMode)
}

// showAll gives what is in a tree that was copied the modes that a copy has
// everywhere: who may run a file is kept.
func showAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() && !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		mode := fileMode
		if info.Mode()&0o100 != 0 {
			mode = dirMode
		}
		return os.Chmod(path, mode) //nolint:gosec // nobody else has the copy yet
	})
}
