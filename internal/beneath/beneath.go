//go:build linux

// Package beneath opens files in directories that a sandbox can write to. It is the
// only way by which the host does so.
//
// A process in the sandbox may replace any file or directory by any other at any moment. So
// names are resolved beneath a descriptor of the directory, no link is followed, no other
// file system is entered, no open blocks, and no more names are read than the caller has
// said. Only InRoot follows links, and those stay inside the root.
package beneath

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Tree is a directory of the host in which a sandbox writes. The directory itself
// is the host's; what is in it is not. It is a type of its own, so that no path in
// it is opened as if it were one of the host's.
type Tree struct{ host string }

// At is the tree in a directory of the host.
func At(dir string) Tree { return Tree{host: dir} }

// Host is the path of the directory itself: to mount it, to check whether it exists, and to
// remove it.
func (t Tree) Host() string { return t.host }

// Open opens the directory.
func (t Tree) Open() (Dir, error) { return Open(t.host) }

// Remove removes the directory and all that is in it. However deep that is, it takes
// three descriptors: what lies below a directory is moved up before it is removed.
func (t Tree) Remove() error {
	top, err := t.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	err = top.each(func(name string) error {
		err := unix.Unlinkat(int(top.Fd()), name, 0)
		if !errors.Is(err, unix.EISDIR) {
			return err
		}
		return top.removeDir(name)
	})
	if err == nil {
		err = os.Remove(t.host)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", t.host, err)
	}
	return nil
}

// removeDir removes a directory that is in d. The directories in it become directories of
// d, with unused names.
func (d Dir) removeDir(name string) error {
	below, err := d.Dir(name)
	if err != nil {
		return err
	}
	defer func() { _ = below.Close() }()
	err = below.each(func(inner string) error {
		err := unix.Unlinkat(int(below.Fd()), inner, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Renameat2(int(below.Fd()), inner, int(d.Fd()), ".removed-"+rand.Text(), unix.RENAME_NOREPLACE)
		}
		return err
	})
	if err == nil {
		err = unix.Unlinkat(int(d.Fd()), name, unix.AT_REMOVEDIR)
	}
	return err
}

// each calls do, which removes what it is given, with every name in the directory, until
// there is none. A name that is gone by then was removed by another process.
func (d Dir) each(do func(name string) error) error {
	const step = 4096
	for {
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := d.Readdirnames(step)
		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := do(name); err != nil && !errors.Is(err, unix.ENOENT) {
				return &fs.PathError{Op: "remove", Path: Quoted(name), Err: err}
			}
		}
	}
}

// Dir is an open directory, beneath which names are resolved.
type Dir struct{ *os.File }

// Open opens a directory of the host.
func Open(dir string) (Dir, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Dir{}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return Dir{os.NewFile(uintptr(fd), dir)}, nil
}

// At opens what a path names beneath the directory. A pipe or a device does not make
// it wait, but may be what is opened: see Regular.
func (d Dir) At(path string, flags int) (*os.File, error) {
	if len(path) > maxResolved {
		return d.far(path, flags)
	}
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY), //nolint:gosec // flags are small
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o600
	}
	return d.open(path, how)
}

// InRoot opens the directory that a path names where the directory at hand is the root
// of a machine: links in it are followed, and lead to somewhere inside, absolute or not.
// It is for images, which say so of their names.
func (d Dir) InRoot(path string) (Dir, error) {
	f, err := d.open(path, unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	return Dir{f}, err
}

func (d Dir) open(path string, how unix.OpenHow) (*os.File, error) {
	for {
		fd, err := unix.Openat2(int(d.Fd()), path, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), Quoted(path)), nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue // something was renamed somewhere on this machine meanwhile
		}
		return nil, &fs.PathError{Op: "open", Path: Quoted(path), Err: err}
	}
}

// Path is where the directory is now, as the kernel reports it.
func (d Dir) Path() (string, error) { return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", d.Fd())) }

// maxResolved is how long a path may be that the kernel resolves at once.
const maxResolved = unix.PathMax - 1

// far opens what a longer path names, part by part, with two descriptors. A directory
// on the way that is moved meanwhile is followed, and stays on this file system.
func (d Dir) far(path string, flags int) (*os.File, error) {
	at, rest := d, path
	for len(rest) > maxResolved {
		cut := strings.LastIndexByte(rest[:maxResolved+1], '/')
		if cut <= 0 {
			break // the kernel says that the name is too long
		}
		next, err := at.Dir(rest[:cut])
		if at.File != d.File {
			_ = at.Close()
		}
		if err != nil {
			return nil, err
		}
		at, rest = next, rest[cut+1:]
	}
	if at.File != d.File {
		defer func() { _ = at.Close() }()
	}
	if len(rest) > maxResolved {
		return nil, &fs.PathError{Op: "open", Path: Quoted(path), Err: unix.ENAMETOOLONG}
	}
	return at.At(rest, flags)
}

// Dir opens the directory that a path names.
func (d Dir) Dir(path string) (Dir, error) {
	f, err := d.At(path, unix.O_RDONLY|unix.O_DIRECTORY)
	return Dir{f}, err
}

// Regular opens the file that a path names, to be read. Anything that is not a plain
// file is an error; that of one in whose place is something else by now is ENOENT.
func (d Dir) Regular(path string) (*os.File, error) {
	f, err := d.At(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	at, err := f.Stat()
	if err == nil && !at.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: Quoted(path), Err: unix.ENOENT}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ErrTooMany means that a directory has more names than are wanted.
var ErrTooMany = errors.New("there are more names than may be")

// Names lists what is in the directory, and returns ErrTooMany if that is more than
// most, without holding all of it. One that was removed meanwhile has none.
func (d Dir) Names(most int) ([]string, error) {
	const step = 4096
	var all []string
	for {
		names, err := d.Readdirnames(step)
		all = append(all, names...)
		switch {
		case len(all) > most:
			return nil, ErrTooMany
		case errors.Is(err, io.EOF), errors.Is(err, unix.ENOENT):
			return all, nil
		case err != nil:
			return nil, err
		}
	}
}

// Quoted is a name as errors have it. Programs in the sandbox choose names, and terminals
// and logs would interpret their control characters.
func Quoted(name string) string { return fmt.Sprintf("%.200q", name) }
