//go:build linux

package layer

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// target is where an unpacker puts what a tar holds.
type target interface {
	mkWhiteout(path string) error
	setOpaque(path string) error
	dir(e Entry, all []xattr) error
	symlink(e Entry, to string) error
	fifo(e Entry) error
	// link gives a file another name.
	link(from, to string) error
	// file reads the pieces of a file one after the other.
	file(e Entry, all []xattr, pieces []int64, in io.Reader) error
}

// nowhere is a target that keeps nothing.
type nowhere struct{}

func (nowhere) mkWhiteout(string) error           { return nil }
func (nowhere) setOpaque(string) error      { return nil }
func (nowhere) dir(Entry, []xattr) error     { return nil }
func (nowhere) symlink(Entry, string) error { return nil }
func (nowhere) fifo(Entry) error            { return nil }
func (nowhere) link(string, string) error   { return nil }

func (nowhere) file(_ Entry, _ []xattr, pieces []int64, in io.Reader) error {
	for i := 0; i+1 < len(pieces); i += 2 {
		if _, err := io.CopyN(io.Discard, in, pieces[i+1]); err != nil {
			return fmt.Errorf("it ends too soon: %w", err)
		}
	}
	return nil
}

// disk is a target that makes a layer in a directory.
type disk struct {
	root
	space *Space
}

func (d disk) mkWhiteout(path string) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	return d.root.mkWhiteout(path)
}

func (d disk) dir(e Entry, all []xattr) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	if e.Path != "." {
		err := d.withParent(e.Path, func(dir int, name string) error { return unix.Mkdirat(dir, name, 0o700) })
		if err != nil {
			return err
		}
	}
	return d.furnish(e, all)
}

// furnish gives a directory that is there what it has.
func (d disk) furnish(e Entry, all []xattr) error {
	f, err := d.openDir(e.Path)
	if err != nil {
		return err
	}
	if err := errors.Join(setXattrs(f, all), f.Close()); err != nil {
		return err
	}
	return d.setMetadata(e)
}

func (d disk) symlink(e Entry, to string) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	err := d.withParent(e.Path, func(dir int, name string) error { return unix.Symlinkat(to, dir, name) })
	if err != nil {
		return err
	}
	return d.setMetadata(e)
}

func (d disk) fifo(e Entry) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	err := d.withParent(e.Path, func(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) })
	if err != nil {
		return err
	}
	return d.setMetadata(e)
}

func (d disk) link(from, to string) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	err := link(d.root, from, to)
	if !errors.Is(err, unix.EMLINK) {
		return err
	}
	// Another file system gave it more names than this one does. In a layer that is
	// mounted each is a file of its own in the end.
	e, err := d.stat(from)
	if err != nil {
		return err
	}
	in, err := d.Regular(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	e.Path = to
	out, err := d.At(to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	if err := errors.Join(cloneFile(d.space, e, in, out), out.Close()); err != nil {
		return err
	}
	return d.setMetadata(e)
}

func (d disk) file(e Entry, all []xattr, pieces []int64, in io.Reader) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	f, err := d.At(e.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	err = d.fill(f, pieces, in)
	if err == nil {
		err = f.Truncate(e.Size)
	}
	if err := errors.Join(err, setXattrs(f, all), f.Close()); err != nil {
		return err
	}
	return d.setMetadata(e)
}

// fill writes the pieces of a file.
func (d disk) fill(f io.WriterAt, pieces []int64, in io.Reader) error {
	for i := 0; i+1 < len(pieces); i += 2 {
		for at, end := pieces[i], pieces[i]+pieces[i+1]; at < end; at += checkEvery {
			n := min(checkEvery, end-at)
			if err := d.space.Take(n); err != nil {
				return err
			}
			if _, err := io.CopyN(io.NewOffsetWriter(f, at), in, n); err != nil {
				return fmt.Errorf("it ends too soon: %w", err)
			}
		}
	}
	return nil
}
