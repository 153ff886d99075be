//go:build !linux

package runner

import (
	"errors"
	"os"
	"path/filepath"
)

// shortDir returns a short name of a directory, good until done is called: a symbolic
// link in a directory that only this user can read.
func shortDir(dir string) (short string, done func(), err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	own, err := os.MkdirTemp("/tmp", "dm") // that of the user may be as long as the path
	if err != nil {
		return "", nil, err
	}
	link := filepath.Join(own, "d")
	if err := os.Symlink(abs, link); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(own))
	}
	return link, func() { _ = os.RemoveAll(own) }, nil
}
