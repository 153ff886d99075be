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

// BreakHardLinks replaces every hard link of a file but the first with a copy. overlayfs
// copies up only the link that is written to, and so splits it from the others. A kernel
// in between that still takes them for one file, as gVisor does, would write what is meant
// for the others to that copy.
func BreakHardLinks(ctx context.Context, dir string, l Limits) error {
	all, _, err := Scan(ctx, dir, l)
	if err != nil {
		return fmt.Errorf("break hard links: %w", err)
	}
	r, err := openRoot(dir)
	if err != nil {
		return fmt.Errorf("break hard links: %w", err)
	}
	defer func() { _ = r.Close() }()
	space := SpaceIn(dir)
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
			return fmt.Errorf("break hard links: %w", ErrTooBig)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("break hard links: %w", context.Cause(ctx))
		}
		if err := breakHardLink(r, space, from, e); err != nil {
			return fmt.Errorf("break hard links of %.200q: %w", e.Path, err)
		}
		touched[path.Dir(e.Path)] = true
	}
	for _, e := range all {
		if e.Kind == Dir && touched[e.Path] {
			if err := r.setTime(e); err != nil {
				return fmt.Errorf("break hard links: %w", err)
			}
		}
	}
	return nil
}

// breakHardLink replaces a hard link with a copy of its file.
func breakHardLink(r root, space *Space, from string, e Entry) error {
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
	if err := errors.Join(cloneFile(space, e, in, out), out.Close()); err != nil {
		return err
	}
	return r.setMetadata(e)
}

// cloneFile copies a file, as a reflink where the file system can. Neither is written to
// afterwards.
func cloneFile(space *Space, e Entry, in, out *os.File) error {
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		return (&copier{space: space}).content(e, in, out)
	}
	all, err := readXattrs(in)
	if err != nil {
		return err
	}
	return setXattrs(out, all)
}
