//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Copy copies entries of one directory to another, which must be empty or hold only what
// an earlier copy has put there. It copies no more of a file than the size of its entry.
// It returns the entries that were removed or changed while they were read; to get a
// consistent copy of those, the caller stops the writers and copies again.
func Copy(ctx context.Context, from string, entries Index, to string) (changed []Entry, err error) {
	return copyWithin(ctx, SpaceIn(to), from, entries, to)
}

// copyWithin is Copy within the space of a disk.
func copyWithin(ctx context.Context, space *Space, from string, entries Index, to string) (changed []Entry, err error) {
	src, err := openRoot(from)
	if err != nil {
		return nil, fmt.Errorf("copy: %w", err)
	}
	defer func() { _ = src.Close() }()
	dst, err := openRoot(to)
	if err != nil {
		return nil, fmt.Errorf("copy: %w", err)
	}
	defer func() { _ = dst.Close() }()
	c := copier{src: src, dst: dst, space: space, links: make(map[uint64]string)}
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("copy: %w", context.Cause(ctx))
		}
		if err := c.entry(e); err != nil {
			return nil, fmt.Errorf("copy %.200q: %w", e.Path, err)
		}
	}
	if err := setDirTimes(dst, entries); err != nil {
		return nil, fmt.Errorf("copy: %w", err)
	}
	return c.changed, nil
}

// setDirTimes sets the times of directories, the innermost first.
func setDirTimes(r root, entries Index) error {
	for _, e := range slices.Backward(entries) {
		if e.Kind == Dir {
			if err := r.setTime(e); err != nil {
				return err
			}
		}
	}
	return nil
}

type copier struct {
	src, dst root
	space    *Space
	links    map[uint64]string // the first path of a file with several hard links
	changed  []Entry
}

func (c *copier) entry(e Entry) error {
	if err := c.space.Take(perInode); err != nil {
		return err
	}
	switch e.Kind {
	case Whiteout:
		return c.dst.mkWhiteout(e.Path)
	case Dir:
		return c.dir(e)
	case Symlink:
		return c.symlink(e)
	case Fifo:
		err := c.dst.withParent(e.Path, func(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) })
		if err != nil {
			return err
		}
		return c.dst.setMetadata(e)
	case File:
		return c.file(e)
	case Unsupported:
	}
	return fmt.Errorf("it is of the kind %d, which no layer carries", e.Kind)
}

// vanished records an entry that was removed or replaced before it was read.
func (c *copier) vanished(e Entry, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		c.changed = append(c.changed, e)
		return nil
	}
	return err
}

func (c *copier) dir(e Entry) error {
	err := error(unix.EEXIST)
	if e.Path != "." {
		err = c.dst.withParent(e.Path, func(dir int, name string) error { return unix.Mkdirat(dir, name, 0o700) })
	}
	if errors.Is(err, unix.EEXIST) { // an earlier copy has made it
		err = c.dst.clearXattrs(e.Path)
	}
	if err != nil {
		return err
	}
	if err := c.copyXattrs(e); err != nil {
		return err
	}
	if e.Opaque {
		if err := c.dst.setOpaque(e.Path); err != nil {
			return err
		}
	}
	return c.dst.setMetadata(e)
}

// copyXattrs copies the extended attributes of a directory.
func (c *copier) copyXattrs(e Entry) error {
	in, err := c.src.openDir(e.Path)
	if err != nil {
		return c.vanished(e, err)
	}
	defer func() { _ = in.Close() }()
	all, err := readXattrs(in)
	if err != nil || len(all) == 0 {
		return err
	}
	out, err := c.dst.openDir(e.Path)
	if err != nil {
		return err
	}
	return errors.Join(setXattrs(out, all), out.Close())
}

func (c *copier) symlink(e Entry) error {
	target, err := c.src.readlink(e.Path)
	if errors.Is(err, unix.EINVAL) {
		err = unix.ENOENT // it is something else by now
	}
	if err != nil {
		return c.vanished(e, err)
	}
	err = c.dst.withParent(e.Path, func(dir int, name string) error { return unix.Symlinkat(target, dir, name) })
	if err != nil {
		return err
	}
	return c.dst.setMetadata(e)
}

func (c *copier) file(e Entry) error {
	if first, ok := c.links[e.Inode]; ok && e.Links > 1 {
		// The source file system may allow more links than this one.
		if err := link(c.dst, first, e.Path); !errors.Is(err, unix.EMLINK) {
			return err
		}
	}
	in, err := c.src.Regular(e.Path)
	if err != nil {
		return c.vanished(e, err) // it was replaced or removed
	}
	defer func() { _ = in.Close() }()
	out, err := c.dst.At(e.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	if err := errors.Join(c.content(e, in, out), out.Close()); err != nil {
		return err
	}
	if e.Links > 1 {
		c.links[e.Inode] = e.Path
	}
	return c.dst.setMetadata(e)
}

// content copies the content of a file, without its holes.
func (c *copier) content(e Entry, in, out *os.File) error {
	err := eachExtent(in, e.Size, func(at, n int64) error {
		for end := at + n; at < end; at += checkEvery {
			n := min(checkEvery, end-at)
			if err := c.space.Take(n); err != nil {
				return err
			}
			if _, err := io.Copy(io.NewOffsetWriter(out, at), io.NewSectionReader(in, at, n)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = out.Truncate(e.Size)
	}
	if err != nil {
		return err
	}
	all, err := readXattrs(in)
	if err != nil {
		return err
	}
	if err := setXattrs(out, all); err != nil {
		return err
	}
	var s unix.Stat_t
	if err := unix.Fstat(int(in.Fd()), &s); err != nil {
		return err
	}
	if !entryAt(e.Path, &s).unchanged(e) {
		c.changed = append(c.changed, e)
	}
	return nil
}

// eachExtent calls do for each extent of a file that holds data.
func eachExtent(f *os.File, size int64, do func(at, n int64) error) error {
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if errors.Is(err, unix.ENXIO) {
			return nil // it was truncated
		}
		if err != nil {
			return err
		}
		if end = min(end, size); start < end {
			if err := do(start, end-start); err != nil {
				return err
			}
		}
		at = end
		if start >= size {
			return nil
		}
	}
	return nil
}

// link makes a hard link in a layer.
func link(r root, from, to string) error { return linkBetween(r, from, r, to) }
