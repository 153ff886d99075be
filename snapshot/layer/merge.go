//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Merge makes one layer out of several, the lowest first, with nothing below
// them, in an empty directory on the same file system. Files are shared with the
// layers they come from and not copied: nobody may write to either.
func Merge(ctx context.Context, dirs []string, l Limits, to string) error {
	var all []placed
	for n, dir := range dirs {
		if ctx.Err() != nil {
			return fmt.Errorf("merge: %w", context.Cause(ctx))
		}
		entries, _, err := Scan(dir, l)
		if err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		if all = lay(all, n, entries); len(all) > l.Entries {
			return fmt.Errorf("merge: %w", ErrTooMany)
		}
	}
	if err := write(ctx, dirs, all, to); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	return nil
}

// placed is an entry and the layer that it is in.
type placed struct {
	Entry
	layer int
}

// lay puts a layer over what there is.
func lay(lower []placed, n int, upper Index) []placed {
	out := make([]placed, 0, len(lower)+len(upper))
	hidden := "" // what is below this path is gone
	keep := func(p placed) {
		if hidden == "" || !strings.HasPrefix(p.Path, hidden) {
			out = append(out, p)
		}
	}
	for _, e := range upper {
		for len(lower) > 0 && compare(lower[0].Path, e.Path) < 0 {
			keep(lower[0])
			lower = lower[1:]
		}
		was := Kind(0)
		if len(lower) > 0 && lower[0].Path == e.Path {
			was = lower[0].Kind
			lower = lower[1:]
		}
		if inside := hidden != "" && strings.HasPrefix(e.Path, hidden); was == Dir && !inside && (e.Kind != Dir || e.Opaque) {
			hidden = e.Path + "/"
		}
		if e.Kind != Gone {
			out = append(out, placed{e, n})
		}
	}
	for _, p := range lower {
		keep(p)
	}
	return out
}

// write makes the merged layer.
func write(ctx context.Context, dirs []string, all []placed, to string) error {
	layers := make([]root, len(dirs))
	defer func() {
		for _, r := range layers {
			if r.File != nil {
				_ = r.Close()
			}
		}
	}()
	for i, dir := range dirs {
		var err error
		if layers[i], err = openRoot(dir); err != nil {
			return err
		}
	}
	dst, err := openRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = dst.Close() }()
	var made Index
	for _, p := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if p.Kind != Dir {
			if err := share(layers[p.layer], p.Path, dst, p.Path); err != nil {
				return fmt.Errorf("%.200q: %w", p.Path, err)
			}
			continue
		}
		p.Opaque = false
		made = append(made, p.Entry)
		c := copier{src: layers[p.layer], dst: dst}
		if err := c.dir(p.Entry); err != nil {
			return fmt.Errorf("%.200q: %w", p.Path, err)
		}
		if len(c.torn) > 0 {
			return fmt.Errorf("%.200q: %w", p.Path, errors.New("somebody changes the layer"))
		}
	}
	return stampDirs(dst, made)
}

// share gives what has a path in one layer another in the same, or in another.
func share(src root, from string, dst root, to string) error {
	return src.in(from, func(dir int, name string) error {
		return dst.in(to, func(dir2 int, name2 string) error { return unix.Linkat(dir, name, dir2, name2, 0) })
	})
}
