//go:build linux

package layertest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Hand writes to a directory at random.
type Hand struct {
	R   *rand.Rand
	Dir string
}

// Step does something to the directory, and never through a link in it: that may
// lead anywhere.
func (h Hand) Step() error {
	name, other := h.name(), h.name()
	if linked(h.Dir, name) || linked(h.Dir, other) {
		if h.R.IntN(3) == 0 {
			return unlink(h.Dir, name)
		}
		return nil
	}
	var err error
	switch h.R.IntN(20) {
	case 0, 1, 2:
		err = os.WriteFile(name, h.bytes(), h.mode())
	case 3, 4:
		err = h.change(name, os.O_APPEND|os.O_WRONLY, func(f *os.File) error { _, err := f.Write(h.bytes()); return err })
	case 5:
		err = os.Truncate(name, int64(h.R.IntN(5000)))
	case 6, 7:
		err = os.Rename(name, other)
	case 8:
		err = os.Link(name, other)
	case 9:
		err = os.Symlink(h.target(), name)
	case 10:
		err = os.Remove(name)
	case 11:
		err = os.RemoveAll(name)
	case 12:
		err = os.Chmod(name, h.mode())
	case 13:
		err = unix.Setxattr(name, fmt.Sprintf("user.x%d", h.R.IntN(3)), h.bytes()[:h.R.IntN(20)], 0)
	case 14:
		err = h.change(name, os.O_CREATE|os.O_WRONLY, func(f *os.File) error {
			_, err := f.WriteAt(h.bytes(), int64(h.R.IntN(8<<20)))
			return err
		})
	case 15, 16:
		err = os.MkdirAll(name, 0o700|h.mode())
	case 17: // a directory becomes a file, or a file a directory
		if i, e := os.Lstat(name); e == nil {
			if err := os.RemoveAll(name); err != nil {
				return err
			}
			if i.IsDir() {
				err = os.WriteFile(name, h.bytes(), h.mode())
			} else {
				err = os.Mkdir(name, 0o755)
			}
		}
	case 18:
		err = errors.Join(os.Lchown(name, h.R.IntN(4), h.R.IntN(4)))
	case 19:
		err = os.Chtimes(name, time.Time{}, time.Unix(int64(h.R.IntN(1<<31)), int64(h.R.IntN(1e9))))
	}
	var failed *fs.PathError
	var linked *os.LinkError
	var number unix.Errno
	if err != nil && !errors.As(err, &failed) && !errors.As(err, &linked) && !errors.As(err, &number) {
		return err
	}
	return nil
}

// linked reports whether a path, or a directory that it is in, is a link.
func linked(root, name string) bool {
	for ; name != root; name = filepath.Dir(name) {
		if i, err := os.Lstat(name); err == nil && i.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// unlink removes the first link on a path.
func unlink(root, name string) error {
	for at := name; at != root; at = filepath.Dir(at) {
		if !linked(root, filepath.Dir(at)) && linked(root, at) {
			return os.Remove(at)
		}
	}
	return nil
}

// name is one of few, so that steps meet.
func (h Hand) name() string {
	names := []string{"a", "b", "c", "deep", ".wh.x", "new\nline", "é"}
	parts := []string{h.Dir}
	for range 1 + h.R.IntN(3) {
		parts = append(parts, names[h.R.IntN(len(names))])
	}
	return filepath.Join(parts...)
}

func (h Hand) target() string {
	return []string{"a", "../b", "/nowhere/else", "nowhere", "."}[h.R.IntN(5)]
}

func (h Hand) bytes() []byte {
	return bytes.Repeat([]byte{byte(h.R.IntN(256))}, 20+h.R.IntN(3000))
}

func (h Hand) mode() os.FileMode {
	return []os.FileMode{0o644, 0o600, 0o755, 0, 0o777 | os.ModeSetuid, 0o755 | os.ModeSticky}[h.R.IntN(6)]
}

func (h Hand) change(name string, flags int, do func(*os.File) error) error {
	if i, err := os.Lstat(name); err == nil && !i.Mode().IsRegular() {
		return nil // it would leave the workspace
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}
