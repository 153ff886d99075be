//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// Apply puts back what was planned. It syncs nothing but what it moves outside. A file
// is whole before it has its name, so that whoever is cut off, or finds no room, leaves
// nothing behind that is taken for something found. It fails with ErrNoRoom if there is
// no room for the snapshot's files even without those found in their place, and leaves
// then what a recovery into another directory can go on from.
func (r *Recovery) Apply(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("bring back what was lost: %w", err)
		}
	}()
	b := &restorer{Recovery: r, upper: r.found.roots[len(r.Base)]}
	defer b.close()
	if err := beneath.At(r.Scratch).Remove(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beneath.At(r.Scratch).Remove()) }()
	for _, src := range r.snapshot.roots {
		b.from = append(b.from, copier{src: src, dst: b.upper, links: make(map[uint64]string)})
	}
	for _, path := range r.unhidden {
		if err := b.unlink(path); err != nil {
			return fmt.Errorf("%.200q: %w", path, err)
		}
	}
	var dirs Index
	for _, s := range r.steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := b.step(s); err != nil {
			return fmt.Errorf("%.200q: %w", s.Path, err)
		}
		if s.Kind == Dir {
			dirs = append(dirs, s.Entry)
		}
	}
	return setDirTimes(b.upper, dirs)
}

// restorer puts back what a recovery has planned.
type restorer struct {
	*Recovery
	upper   root
	from    []copier // by layer of the point
	scratch *root    // nil before it is needed
	outside *root    // as well
	asides  []step   // what is kept beside and can be moved outside
}

func (b *restorer) close() {
	for _, r := range []*root{b.scratch, b.outside} {
		if r != nil {
			_ = r.Close()
		}
	}
}

// step puts back one path. For want of room it moves outside what was found there, and
// then what was found at the paths before.
func (b *restorer) step(s step) error {
	for {
		err := b.copyParents(s.Path)
		if err == nil {
			err = b.put(&s)
		}
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			return err
		}
		made, wrong := b.freeSpace(&s)
		if wrong != nil {
			return wrong
		}
		if !made {
			return fmt.Errorf("%w: %w", ErrNoSpace, err)
		}
	}
}

// copyParents makes the directories that a path is in, which until now only the layers below
// have.
func (b *restorer) copyParents(path string) error {
	var missing []layerEntry
	for above := parent(path); above != "."; above = parent(above) {
		if _, there := b.Recovery.upper.at(above); there || b.planned[above] {
			break
		}
		p, ok := find(b.snapshot.entries, above)
		if !ok {
			return errors.New("it is in no directory")
		}
		missing = append(missing, p)
	}
	for _, p := range slices.Backward(missing) {
		p.Opaque = false
		if err := b.from[p.layer].dir(p.Entry); err != nil {
			return err
		}
		b.planned[p.Path] = true
	}
	return nil
}

// put puts back one path. What fails for want of room can be tried again.
func (b *restorer) put(s *step) error {
	upper, there := b.Recovery.upper.at(s.Path)
	switch s.Kind { //nolint:exhaustive // the others are made aside
	case Whiteout:
		return b.upper.mkWhiteout(s.Path)
	case Dir:
		e := s.Entry
		e.Opaque = there && upper.Kind == Dir && upper.Opaque
		if s.savedAs != "" {
			if err := b.setAside(s); err != nil {
				return err
			}
		}
		if there && upper.Kind != Dir {
			e.Opaque = true
		}
		return b.from[s.layer].copyStable(e)
	}
	if err := b.prepare(s); err != nil {
		return err
	}
	if s.savedAs != "" {
		if err := b.setAside(s); err != nil {
			return err
		}
	}
	err := b.scratch.withParent(preparedName, func(from int, name string) error {
		return b.upper.withParent(s.Path, func(to int, as string) error { return unix.Renameat(from, name, to, as) })
	})
	if c := &b.from[s.layer]; err == nil && s.Kind == File && s.Links > 1 && c.links[s.Inode] == "" {
		c.links[s.Inode] = s.Path
	}
	return err
}

// preparedName is what a file is called before it has its name.
const preparedName = "new"

// prepare makes what is put back where nobody sees it, whole.
func (b *restorer) prepare(s *step) error {
	if b.scratch == nil {
		if err := os.Mkdir(b.Scratch, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		dir, err := openRoot(b.Scratch)
		if err != nil {
			return err
		}
		b.scratch = &dir
	}
	err := unix.Unlinkat(int(b.scratch.Fd()), preparedName, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	c := &b.from[s.layer]
	if first := c.links[s.Inode]; first != "" && s.Kind == File && s.Links > 1 {
		return linkBetween(b.upper, first, *b.scratch, preparedName)
	}
	return copyAs(copier{src: c.src, dst: *b.scratch}, s.Entry, preparedName)
}

// copyAs copies one entry that is no directory to another path.
func copyAs(c copier, e Entry, to string) error {
	as := e
	as.Path = to
	switch e.Kind { //nolint:exhaustive // no other is copied
	case File:
		in, err := c.src.Regular(e.Path)
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }()
		out, err := c.dst.At(to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
		if err != nil {
			return err
		}
		if err := errors.Join(c.content(e, in, out), out.Close()); err != nil {
			return err
		}
	case Symlink:
		target, err := c.src.readlink(e.Path)
		if err == nil {
			err = c.dst.withParent(to, func(dir int, name string) error { return unix.Symlinkat(target, dir, name) })
		}
		if err != nil {
			return err
		}
	case Fifo:
		if err := c.dst.withParent(to, func(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) }); err != nil {
			return err
		}
	default:
		return fmt.Errorf("it is of the kind %d, which no layer carries", e.Kind)
	}
	if len(c.changed) > 0 {
		return errors.New("somebody changes it")
	}
	return c.dst.setMetadata(as)
}

// setAside gives what was found another name beside its own.
func (b *restorer) setAside(s *step) error {
	err := b.upper.withParent(s.Path, func(dir int, name string) error {
		return unix.Renameat2(dir, name, dir, base(s.savedAs), unix.RENAME_NOREPLACE)
	})
	if err != nil {
		return err
	}
	b.asides = append(b.asides, *s)
	s.savedAs = ""
	return nil
}

func (b *restorer) unlink(path string) error {
	return b.upper.withParent(path, func(dir int, name string) error { return unix.Unlinkat(dir, name, 0) })
}

// freeSpace moves something that was found outside, and reports whether there was any.
func (b *restorer) freeSpace(s *step) (bool, error) {
	if b.Outside == "" {
		return false, nil
	}
	if s.savedAs != "" {
		moved, err := b.moveOutside(s.Path, s.Path)
		if moved {
			s.savedAs = ""
		}
		if moved || err != nil {
			return moved, err
		}
	}
	for len(b.asides) > 0 {
		k := b.asides[len(b.asides)-1]
		b.asides = b.asides[:len(b.asides)-1]
		if moved, err := b.moveOutside(k.savedAs, k.Path); moved || err != nil {
			return moved, err
		}
	}
	return false, nil
}

// moveOutside moves what was found at a path, and has a name of its own by now, outside. A
// directory stays, and what cannot be read or copied.
func (b *restorer) moveOutside(name, path string) (bool, error) {
	var e Entry
	err := b.upper.withParent(name, func(dir int, as string) error {
		var at unix.Stat_t
		err := unix.Fstatat(dir, as, &at, unix.AT_SYMLINK_NOFOLLOW)
		e = entryAt(name, &at)
		return err
	})
	if err != nil {
		return false, err
	}
	if e.Kind != File && e.Kind != Symlink && e.Kind != Fifo {
		return false, nil
	}
	if err := b.openOutside(); err != nil {
		return false, err
	}
	if err := makeParents(b.outside.Dir, path); err != nil {
		return false, fmt.Errorf("keep what was found: %w", err)
	}
	err = b.outside.withParent(path, func(dir int, as string) error { return unix.Unlinkat(dir, as, 0) }) // a recovery before this one was cut off
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("keep what was found: %w", err)
	}
	err = copyAs(copier{src: b.upper, dst: *b.outside, space: SpaceIn(b.Outside)}, e, path)
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG) {
		return false, nil
	}
	if err == nil {
		err = unix.Syncfs(int(b.outside.Fd()))
	}
	if err == nil {
		err = b.Moved(path)
	}
	if err == nil {
		err = b.unlink(name)
	}
	if err != nil {
		return false, Full(fmt.Errorf("keep what was found: %w", err))
	}
	return true, nil
}

func (b *restorer) openOutside() error {
	if b.outside != nil {
		return nil
	}
	err := os.Mkdir(b.Outside, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return Full(fmt.Errorf("keep what was found: %w", err))
	}
	dir, err := openRoot(b.Outside)
	if err == nil {
		b.outside = &dir
	}
	return err
}

// makeParents makes the directories that a path is in.
func makeParents(in beneath.Dir, path string) error {
	at := in
	defer func() {
		if at.File != in.File {
			_ = at.Close()
		}
	}()
	for {
		name, rest, more := strings.Cut(path, "/")
		if !more {
			return nil
		}
		if err := unix.Mkdirat(int(at.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		next, err := at.Dir(name)
		if err != nil {
			return err
		}
		if at.File != in.File {
			_ = at.Close()
		}
		at, path = next, rest
	}
}
