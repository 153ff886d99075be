//go:build linux

package layer

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// target is where an unpacker puts what an archive holds.
type target interface {
	mkWhiteout(path string) error
	setOpaque(path string) error
	// dir makes a directory, or changes one that is there: again says that the archive
	// has described it before.
	dir(it item, again bool) error
	symlink(it item) error
	fifo(it item) error
	// link gives a file another name.
	link(from, to string) error
	// file reads the extents of a file one after the other.
	file(it item, in io.Reader) error
}

// discard is a target that writes nothing.
type discard struct{}

func (discard) mkWhiteout(string) error   { return nil }
func (discard) setOpaque(string) error    { return nil }
func (discard) dir(item, bool) error      { return nil }
func (discard) symlink(item) error        { return nil }
func (discard) fifo(item) error           { return nil }
func (discard) link(string, string) error { return nil }

func (discard) file(it item, in io.Reader) error {
	for i := 0; i+1 < len(it.extents); i += 2 {
		if _, err := io.CopyN(io.Discard, in, it.extents[i+1]); err != nil {
			return fmt.Errorf("it ends too soon: %w", err)
		}
	}
	return nil
}

// layerDir is a target that makes a layer in an empty directory. It follows no link and
// replaces nothing: the unpacker has made sure that each name is new.
type layerDir struct {
	root
	space *Space
	buf   []byte
}

// create makes what is no file, and gives it its metadata.
func (d layerDir) create(e Entry, mk func(dir int, name string) error) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	if err := d.withParent(e.Path, mk); err != nil {
		return err
	}
	return d.setMetadata(e)
}

func (d layerDir) mkWhiteout(path string) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	return d.root.mkWhiteout(path)
}

func (d layerDir) dir(it item, again bool) error {
	if !again {
		if err := d.space.Take(perInode); err != nil {
			return err
		}
	}
	if !again && it.Path != "." {
		err := d.withParent(it.Path, func(dir int, name string) error { return unix.Mkdirat(dir, name, 0o700) })
		if err != nil {
			return err
		}
	}
	f, err := d.openDir(it.Path)
	if err != nil {
		return err
	}
	if err := errors.Join(setXattrs(f, it.xattrs), f.Close()); err != nil {
		return err
	}
	return d.setMetadata(it.Entry)
}

func (d layerDir) symlink(it item) error {
	return d.create(it.Entry, func(dir int, name string) error { return unix.Symlinkat(it.to, dir, name) })
}

func (d layerDir) fifo(it item) error {
	return d.create(it.Entry, func(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) })
}

func (d layerDir) link(from, to string) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	err := link(d.root, from, to)
	if !errors.Is(err, unix.EMLINK) {
		return err
	}
	// Another file system gave it more names than this one can. In a layer that is mounted
	// each is a file of its own in the end.
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

func (d layerDir) file(it item, in io.Reader) error {
	if err := d.space.Take(perInode); err != nil {
		return err
	}
	f, err := d.At(it.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	err = writeExtents(f, it, in, d.space, d.buf)
	if err := errors.Join(err, setXattrs(f, it.xattrs), f.Close()); err != nil {
		return err
	}
	return d.setMetadata(it.Entry)
}

// copyBuffer is how much of a file is read at once.
const copyBuffer = 256 << 10

// writeExtents fills an empty file with what an archive holds of it.
func writeExtents(f interface {
	io.WriterAt
	Truncate(size int64) error
}, it item, in io.Reader, space *Space, buf []byte,
) error {
	for i := 0; i+1 < len(it.extents); i += 2 {
		for at, end := it.extents[i], it.extents[i]+it.extents[i+1]; at < end; at += checkEvery {
			n := min(checkEvery, end-at)
			if err := space.Take(n); err != nil {
				return err
			}
			got, err := io.CopyBuffer(io.NewOffsetWriter(f, at), io.LimitReader(in, n), buf)
			if err == nil && got < n {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				return fmt.Errorf("it ends too soon: %w", err)
			}
		}
	}
	return f.Truncate(it.Size)
}
