//go:build linux

package layer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// Change is a path at which two chains of layers differ. The kind of a side that has
// nothing there is 0.
type Change struct {
	Path     string
	Was, Now Entry
}

// Compare finds the differences between two chains of layers, the lowest layer first, with
// nothing below them. Times are not compared: a file is the same if its bytes, owner,
// permissions and extended attributes are. A chain without layers is an empty directory.
func Compare(ctx context.Context, before, now []string, l Limits, each func(Change)) error {
	var a, b view
	err := errors.Join(a.open(ctx, before, l), b.open(ctx, now, l))
	defer closeAll(a.roots)
	defer closeAll(b.roots)
	if err == nil {
		err = compareViews(ctx, &a, &b, func(was, now layerEntry) error {
			each(Change{Path: cmp.Or(was.Path, now.Path), Was: was.Entry, Now: now.Entry})
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	return nil
}

// view is the merged view of a chain of layers.
type view struct {
	roots   []root
	dirs    []string
	devices []uint64 // that they are on
	entries []layerEntry
	// suspect says that it is on a disk that may have failed: what cannot be read there
	// differs from everything.
	suspect bool
}

// open scans layers. The last of them may be a directory that a sandbox writes to, and is
// held to the limits. Those below it are stored layers, or were made of some.
func (v *view) open(ctx context.Context, dirs []string, l Limits) error {
	for _, dir := range dirs {
		if err := v.addLayer(dir); err != nil {
			return err
		}
	}
	for n, dir := range dirs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		limits := Unlimited
		if n == len(dirs)-1 {
			limits = l
		}
		found, _, err := Scan(ctx, dir, limits)
		if err != nil {
			return err
		}
		v.entries = overlayBase(v.entries, n, found)
	}
	return nil
}

// addLayer opens one more layer without scanning it.
func (v *view) addLayer(dir string) error {
	r, err := openRoot(dir)
	if err != nil {
		return err
	}
	v.roots, v.dirs = append(v.roots, r), append(v.dirs, dir)
	var at unix.Stat_t
	if err := unix.Fstat(int(r.Fd()), &at); err != nil {
		return err
	}
	v.devices = append(v.devices, at.Dev)
	return nil
}

// compareViews calls each with what differs. An entry that is missing is zero.
func compareViews(ctx context.Context, a, b *view, each func(was, now layerEntry) error) error {
	was, now := a.entries, b.entries
	if len(was) == 0 || len(now) == 0 { // there is a root all the same
		was, now = was[min(1, len(was)):], now[min(1, len(now)):]
	}
	for len(was) > 0 || len(now) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		switch {
		case len(now) == 0 || len(was) > 0 && compare(was[0].Path, now[0].Path) < 0:
			err = each(was[0], layerEntry{})
			was = was[1:]
		case len(was) == 0 || compare(was[0].Path, now[0].Path) > 0:
			err = each(layerEntry{}, now[0])
			now = now[1:]
		default:
			var same bool
			if same, err = a.same(ctx, was[0], b, now[0]); err != nil {
				return fmt.Errorf("%.200q: %w", was[0].Path, err)
			}
			if !same {
				err = each(was[0], now[0])
			}
			was, now = was[1:], now[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two entries of one path are the same. Entries of the same layer
// are, and so are those that share an inode.
func (v *view) same(ctx context.Context, e layerEntry, other *view, o layerEntry) (bool, error) {
	if v.dirs[e.layer] == other.dirs[o.layer] || e.Kind == File && e.Inode == o.Inode && v.devices[e.layer] == other.devices[o.layer] {
		return true, nil
	}
	if e.Kind != o.Kind || e.Mode != o.Mode || e.UID != o.UID || e.GID != o.GID || e.Size != o.Size {
		return false, nil
	}
	switch e.Kind { //nolint:exhaustive // of the others there is no more to know
	case Symlink:
		a, err := v.roots[e.layer].readlink(e.Path)
		if err != nil {
			return false, err
		}
		b, err := other.roots[o.layer].readlink(o.Path)
		return a == b, err
	case File, Dir:
		same, err := sameFile(ctx, v.roots[e.layer], other.roots[o.layer], e.Entry)
		if other.suspect && (errors.Is(err, unix.EIO) || errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG)) {
			return false, nil
		}
		return same, err
	}
	return true, nil
}

// SameRoot reports whether the roots of two layers are the same, to the nanosecond.
func SameRoot(ctx context.Context, a, b string) (bool, error) {
	var entries [2]Entry
	var roots [2]root
	for i, dir := range []string{a, b} {
		r, err := openRoot(dir)
		if err != nil {
			return false, err
		}
		defer func() { _ = r.Close() }()
		var at unix.Stat_t
		if err := unix.Fstat(int(r.Fd()), &at); err != nil {
			return false, fmt.Errorf("%.200q: %w", dir, err)
		}
		roots[i], entries[i] = r, entryAt(".", &at)
		entries[i].Changed, entries[i].Inode, entries[i].Links, entries[i].Size = Stamp{}, 0, 0, 0
	}
	if entries[0] != entries[1] {
		return false, nil
	}
	return sameFile(ctx, roots[0], roots[1], entries[0])
}

// sameFile compares a file or directory of the same size in two layers.
func sameFile(ctx context.Context, a, b root, e Entry) (bool, error) {
	flags := unix.O_RDONLY
	if e.Kind == Dir {
		flags |= unix.O_DIRECTORY
	}
	f, err := a.At(e.Path, flags)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	g, err := b.At(e.Path, flags)
	if err != nil {
		return false, err
	}
	defer func() { _ = g.Close() }()
	attached, err := readXattrs(f)
	if err != nil {
		return false, err
	}
	others, err := readXattrs(g)
	if err != nil || !slices.Equal(byName(attached), byName(others)) {
		return false, err
	}
	if e.Kind == Dir {
		return true, nil
	}
	return sameBytes(ctx, f, g)
}

func byName(all []xattr) []xattr {
	slices.SortFunc(all, func(a, b xattr) int { return cmp.Compare(a.name, b.name) })
	return all
}

func sameBytes(ctx context.Context, a, b io.Reader) (bool, error) {
	const size = 128 << 10
	x, y := make([]byte, size), make([]byte, size)
	for ctx.Err() == nil {
		n, last, err := readFull(a, x)
		m, _, other := readFull(b, y)
		if err := errors.Join(err, other); err != nil {
			return false, err
		}
		if same := bytes.Equal(x[:n], y[:m]); !same || last {
			return same, nil
		}
	}
	return false, context.Cause(ctx)
}

// readFull fills the buffer, and reports whether the end was reached.
func readFull(r io.Reader, to []byte) (n int, last bool, err error) {
	n, err = io.ReadFull(r, to)
	if last = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); last {
		err = nil
	}
	return n, last, err
}
