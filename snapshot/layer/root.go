//go:build linux

package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// root is a directory of a layer, or of what is to become one.
type root struct{ beneath.Dir }

func openRoot(dir string) (root, error) {
	d, err := beneath.Open(dir)
	return root{d}, err
}

func (r root) openDir(path string) (*os.File, error) {
	d, err := r.Dir.Dir(path)
	return d.File, err
}

// withParent calls do with the directory that a path is in, and its name there.
func (r root) withParent(path string, do func(dir int, name string) error) error {
	dir, err := r.openDir(parent(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return do(int(dir.Fd()), base(path))
}

// readlink is where the link at a path points.
func (r root) readlink(path string) (string, error) {
	to := make([]byte, maxTarget+1)
	n := 0
	err := r.withParent(path, func(dir int, name string) (err error) {
		n, err = unix.Readlinkat(dir, name, to)
		return err
	})
	return string(to[:max(n, 0)]), err
}

// setMetadata gives what has a path the owner, mode and time of an entry, except for
// directories the time, which changes with every name that is made in them.
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

// setTime gives what has a path the time of an entry.
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

// mkWhiteout marks a name as gone.
func (r root) mkWhiteout(path string) error {
	return r.withParent(path, func(dir int, name string) error {
		if err := unix.Mknodat(dir, name, unix.S_IFCHR, 0); err != nil {
			return &fs.PathError{Op: "hide", Path: beneath.Quoted(path), Err: err}
		}
		return nil
	})
}

// setOpaque marks a directory as one that hides what is below it.
func (r root) setOpaque(path string) error {
	f, err := r.openDir(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	mark := xattr{opaque, "y"}
	err = setXattrs(f, []xattr{mark})
	if !errors.Is(err, ErrTooBig) {
		return err
	}
	// As much as fits may fit only in another order.
	all, err := readXattrs(f)
	if err != nil {
		return err
	}
	if err := r.clearXattrs(path); err != nil {
		return err
	}
	return setXattrs(f, append([]xattr{mark}, all...))
}

// clearXattrs takes from a directory whatever is attached to it.
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
	if hiding, err := isOpaque(f); err != nil {
		return err
	} else if hiding {
		all = append(all, xattr{name: opaque})
	}
	for _, a := range all {
		if err := unix.Fremovexattr(int(f.Fd()), a.name); err != nil {
			return &fs.PathError{Op: "take " + beneath.Quoted(a.name) + " from", Path: beneath.Quoted(path), Err: err}
		}
	}
	return nil
}

// What people may attach to their files. Everything else says something to a
// kernel, and is not theirs to say. What a tar says of a file must be less than 1 MiB:
// beside what is attached that is its path, twice if it is in disguise, and where its
// pieces are.
const (
	userXattr     = "user."
	maxXattrs     = 256
	maxXattrLen   = 64 << 10
	maxXattrName  = 255
	maxXattrBytes = 256 << 10 // bytes of all names and values together
)

// xattr is one of them.
type xattr struct{ name, value string }

// readXattrs reads what is attached to an open file, in the order of the file system: a file
// that has as much of it as it can have may not take it in another.
func readXattrs(f *os.File) ([]xattr, error) {
	n, err := unix.Flistxattr(int(f.Fd()), nil)
	if err != nil || n == 0 {
		return nil, ignoreUnsupported(err)
	}
	names := make([]byte, n)
	if n, err = unix.Flistxattr(int(f.Fd()), names); err != nil {
		return nil, ignoreUnsupported(err)
	}
	var all []xattr
	size := 0
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, userXattr) || len(all) == maxXattrs {
			continue
		}
		value := make([]byte, maxXattrLen)
		n, err := unix.Fgetxattr(int(f.Fd()), name, value)
		if err != nil {
			continue // it went meanwhile
		}
		if size+len(name)+n > maxXattrBytes {
			continue
		}
		size += len(name) + n
		all = append(all, xattr{name, string(value[:n])})
	}
	return all, nil
}

// setXattrs is the opposite of attrs. What is more than a file can have is ErrTooBig.
func setXattrs(f *os.File, all []xattr) error {
	for _, a := range all {
		err := unix.Fsetxattr(int(f.Fd()), a.name, []byte(a.value), 0)
		if errors.Is(err, unix.ENOSPC) && hasSpace(f) {
			return fmt.Errorf("what is attached to %s does not fit a file here: %w", f.Name(), ErrTooBig)
		}
		if err != nil {
			return &fs.PathError{Op: "attach " + beneath.Quoted(a.name) + " to", Path: f.Name(), Err: err}
		}
	}
	return nil
}

// hasSpace reports whether the disk of a file is not full. File systems that keep
// little beside a file say so in the same words.
func hasSpace(f *os.File) bool {
	var at unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &at) == nil && at.Bavail*uint64(at.Bsize) > maxXattrs*maxXattrLen //nolint:gosec // sizes of blocks are positive
}

func ignoreUnsupported(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}
