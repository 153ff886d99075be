//go:build linux

package layer

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// root is the directory of a layer, or of what is to become one.
type root struct{ beneath.Dir }

func openRoot(dir string) (root, error) {
	d, err := beneath.Open(dir)
	return root{d}, err
}

func (r root) openDir(path string) (*os.File, error) {
	d, err := r.Dir.Dir(path)
	return d.File, err
}

// withParent calls do with the parent directory of a path, and the name in it.
func (r root) withParent(path string, do func(dir int, name string) error) error {
	dir, err := r.openDir(parent(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return do(int(dir.Fd()), base(path))
}

// readlink returns the target of the symbolic link at a path.
func (r root) readlink(path string) (string, error) {
	to := make([]byte, maxTarget+1)
	n := 0
	err := r.withParent(path, func(dir int, name string) (err error) {
		n, err = unix.Readlinkat(dir, name, to)
		return err
	})
	return string(to[:max(n, 0)]), err
}

// setMetadata sets the owner, mode and time of what is at the path of an entry, except the
// time of a directory, which changes with every name that is made in it.
func (r root) setMetadata(e Entry) error {
	return r.withParent(e.Path, func(dir int, name string) error {
		if err := setOwnerAt(dir, name, e); err != nil || e.Kind == Dir {
			return err
		}
		return setTimeAt(dir, name, e)
	})
}

// setOwnerAt sets owner and mode. The mode comes after the owner, whose change clears
// set-user-ID.
func setOwnerAt(dir int, name string, e Entry) error {
	if err := unix.Fchownat(dir, name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "chown", Path: beneath.Quoted(e.Path), Err: err}
	}
	if e.Kind == Symlink {
		return nil
	}
	if err := unix.Fchmodat(dir, name, e.Mode, 0); err != nil {
		return &fs.PathError{Op: "chmod", Path: beneath.Quoted(e.Path), Err: err}
	}
	return nil
}

// setTime sets the time of what is at the path of an entry.
func (r root) setTime(e Entry) error {
	return r.withParent(e.Path, func(dir int, name string) error { return setTimeAt(dir, name, e) })
}

func setTimeAt(dir int, name string, e Entry) error {
	t := unix.Timespec(e.Modified)
	if err := unix.UtimesNanoAt(dir, name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "set the time of", Path: beneath.Quoted(e.Path), Err: err}
	}
	return nil
}

// mkWhiteout makes a whiteout.
func (r root) mkWhiteout(path string) error {
	return r.withParent(path, func(dir int, name string) error {
		if err := unix.Mknodat(dir, name, unix.S_IFCHR, 0); err != nil {
			return &fs.PathError{Op: "make a whiteout at", Path: beneath.Quoted(path), Err: err}
		}
		return nil
	})
}

// setOpaque makes a directory opaque.
func (r root) setOpaque(path string) error {
	f, err := r.openDir(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	marker := xattr{opaque, "y"}
	err = setXattrs(f, []xattr{marker})
	if !errors.Is(err, ErrTooBig) {
		return err
	}
	// With the marker first they may fit.
	all, err := readXattrs(f)
	if err != nil {
		return err
	}
	if err := r.clearXattrs(path); err != nil {
		return err
	}
	return setXattrs(f, append([]xattr{marker}, all...))
}

// clearXattrs removes the extended attributes of a directory.
func (r root) clearXattrs(path string) error {
	f, err := r.openDir(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	all, err := readXattrs(f)
	if err != nil {
		return err
	}
	if isSet, err := isOpaque(f); err != nil {
		return err
	} else if isSet {
		all = append(all, xattr{name: opaque})
	}
	for _, a := range all {
		if err := unix.Fremovexattr(int(f.Fd()), a.name); err != nil {
			return &fs.PathError{Op: "remove " + beneath.Quoted(a.name) + " from", Path: beneath.Quoted(path), Err: err}
		}
	}
	return nil
}
