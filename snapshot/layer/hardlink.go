//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// BreakHardLinks makes a file of its own out of every name of a file but the first. Who
// writes to one of several names that lie in a layer gets a copy of it, under that
// name alone; a kernel in between that takes them for one file, as gVisor does, would
// write what is meant for the others to that copy.
func BreakHardLinks(ctx context.Context, dir string, l Limits) error {
	all, _, err := Scan(ctx, dir, l)
	if err != nil {
		return fmt.Errorf("separate: %w", err)
	}
	r, err := openRoot(dir)
	if err != nil {
		return fmt.Errorf("separate: %w", err)
	}
	defer func() { _ = r.Close() }()
	room := SpaceIn(dir)
	first, touched := make(map[uint64]string), make(map[string]bool)
	left := l.Bytes
	for _, e := range all {
		if e.Kind != File || e.Links < 2 {
			continue
		}
		from, again := first[e.Inode]
		if !again {
			first[e.Inode] = e.Path
			continue
		}
		if left -= e.Size; left < 0 {
			return fmt.Errorf("separate: %w", ErrTooBig)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("separate: %w", context.Cause(ctx))
		}
		if err := breakHardLink(r, room, from, e); err != nil {
			return fmt.Errorf("separate %.200q: %w", e.Path, err)
		}
		touched[path.Dir(e.Path)] = true
	}
	for _, e := range all {
		if e.Kind == Dir && touched[e.Path] {
			if err := r.setTime(e); err != nil {
				return fmt.Errorf("separate: %w", err)
			}
		}
	}
	return nil
}

// breakHardLink puts a copy of a file in the place of one of its names.
func breakHardLink(r root, room *Space, from string, e Entry) error {
	in, err := r.Regular(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := r.withParent(e.Path, func(dir int, name string) error { return unix.Unlinkat(dir, name, 0) }); err != nil {
		return err
	}
	out, err := r.At(e.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	if err := errors.Join(cloneFile(room, e, in, out), out.Close()); err != nil {
		return err
	}
	return r.setMetadata(e)
}

// cloneFile gives a file what another has, without taking room for it where the file
// system can share it. Nobody writes to either.
func cloneFile(room *Space, e Entry, in, out *os.File) error {
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		return (&copier{space: room}).content(e, in, out)
	}
	all, err := readXattrs(in)
	if err != nil {
		return err
	}
	return setXattrs(out, all)
}
