// Package filemode creates files and directories with the usual modes whatever the umask
// is. Sandboxes see them, and the server keeps its own files private by its umask.
package filemode

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	dirMode  fs.FileMode = 0o755
	fileMode fs.FileMode = 0o644
)

// MkdirAll is os.MkdirAll with mode 0755. Directories that exist keep their mode.
func MkdirAll(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := MkdirAll(filepath.Dir(dir)); err != nil {
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

// WriteFile is os.WriteFile with mode 0644.
func WriteFile(name string, data []byte) error {
	if err := os.WriteFile(name, data, 0o600); err != nil { //nolint:gosec // in a tree of our own
		return err
	}
	return os.Chmod(name, fileMode)
}

// Normalize sets the modes of a tree that was copied: 0755 for directories and
// executables, 0644 for other files.
func Normalize(dir string) error {
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
		return os.Chmod(path, mode) //nolint:gosec // no other process has the copy yet
	})
}

// CopyTree copies the files, directories and links that everyone may read. A source that
// does not exist is no error.
func CopyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		at := filepath.Join(to, rel)
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			return MkdirAll(at)
		case e.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, at) //nolint:gosec // from /etc to a directory of our own
		case e.Type().IsRegular() && info.Mode().Perm()&0o004 != 0:
			b, err := os.ReadFile(path) //nolint:gosec // of /etc
			if err != nil {
				return err
			}
			return WriteFile(at, b)
		}
		return nil
	})
}
