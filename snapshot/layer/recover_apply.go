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

// Apply restores what was planned. It syncs nothing but what it moves outside. A file is
// complete before it gets its name, so that a recovery that is killed or runs out of space
// leaves nothing that the next one would take for a found file. It fails with ErrNoSpace if
// the snapshot's files do not fit even without those found in their place, and then leaves
// a state from which a recovery into another directory can go on.
func (r *Recovery) Apply(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("recover: %w", err)
		}
	}()
	b := &restorer{Recovery: r, upper: r.found.roots[len(r.Base)]}
	defer b.closeDirs()
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

// restorer restores what a recovery has planned.
type restorer struct {
	*Recovery
	upper   root
	from    []copier // by layer of the snapshot
	scratch *root    // nil before it is needed
	outside *root    // likewise
	asides  []step   // what was saved beside and can be moved outside
}

func (b *restorer) closeDirs() {
	for _, r := range []*root{b.scratch, b.outside} {
		if r != nil {
			_ = r.Close()
		}
	}
}

// step restores one path. If space runs out, it moves what was found there outside, and
// then what was found at earlier paths.
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

// copyParents copies up the directories above a path.
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

// put restores one path. It can be repeated after it ran out of space.
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

// preparedName is the name of a file in the scratch directory.
const preparedName = "new"

// prepare makes the complete file in the scratch directory.
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
		return errors.New("it changed while it was read")
	}
	return c.dst.setMetadata(as)
}

// setAside renames what was found.
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

// freeSpace moves one found file outside, and reports whether there was any.
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

// moveOutside moves what was found at a path, and now has another name, outside. It leaves
// directories, and what cannot be read.
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
		return false, fmt.Errorf("save a found file: %w", err)
	}
	err = b.outside.withParent(path, func(dir int, as string) error { return unix.Unlinkat(dir, as, 0) }) // of a recovery that was interrupted
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("save a found file: %w", err)
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
		return false, Full(fmt.Errorf("save a found file: %w", err))
	}
	return true, nil
}

func (b *restorer) openOutside() error {
	if b.outside != nil {
		return nil
	}
	err := os.Mkdir(b.Outside, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return Full(fmt.Errorf("save a found file: %w", err))
	}
	dir, err := openRoot(b.Outside)
	if err == nil {
		b.outside = &dir
	}
	return err
}

// makeParents makes the directories above a path.
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
