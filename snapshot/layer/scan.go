//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// Scan returns the index of a directory. Mount points, and what else no layer carries, are
// in the second list and not in the first.
func Scan(ctx context.Context, dir string, l Limits) (Index, []Entry, error) {
	return scanSized(ctx, dir, l, 0)
}

// scanSized is Scan of a directory with about as many entries.
func scanSized(ctx context.Context, dir string, l Limits, about int) (Index, []Entry, error) {
	root, err := beneath.Open(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("scan: %w", err)
	}
	s := scan{root: root, cancelled: func() error { return cancelled(ctx) }, left: l.Entries, paths: l.MaxPaths(), found: make(Index, 0, min(about, l.Entries))}
	if err := s.dir(root, ".", 0); err != nil {
		return nil, nil, fmt.Errorf("scan: %w", err)
	}
	return s.found, s.skipped, nil
}

type scan struct {
	root      beneath.Dir
	cancelled func() error // whether the context has ended
	found     Index
	skipped   []Entry
	left      int
	pending   int   // names in the directories above that were not visited yet
	paths     int64 // how many bytes of paths may still come
}

// maxOpenDirs is how many directories above the current one are held open. One that lies
// deeper is closed while those in it are visited, and opened again.
const maxOpenDirs = 64

// dir scans an open directory, which it closes.
func (s *scan) dir(f beneath.Dir, path string, depth int) (err error) {
	defer func() { _ = f.Close() }()
	var at unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &at); err != nil {
		return err
	}
	e := entryAt(path, &at)
	if e.Opaque, err = isOpaque(f.File); err != nil {
		return err
	}
	if err := s.add(e); err != nil {
		return err
	}
	names, err := f.Names(s.left - s.pending)
	if errors.Is(err, beneath.ErrTooMany) {
		err = ErrTooMany
	}
	if err != nil {
		return err
	}
	slices.Sort(names)
	s.pending += len(names)
	for _, name := range names {
		s.pending--
		if f, err = s.name(f, &at, path, name, depth); err != nil || f.File == nil {
			return err
		}
	}
	return nil
}

// name scans one name in a directory, and returns the directory, which may have been opened
// again, or is zero if it was removed. A name that was removed in the meantime is skipped.
func (s *scan) name(dir beneath.Dir, is *unix.Stat_t, in, name string, depth int) (beneath.Dir, error) {
	path := join(in, name)
	var at unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &at, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return dir, nil
	}
	if err != nil {
		return dir, fmt.Errorf("%.200q: %w", path, err)
	}
	e := entryAt(path, &at)
	switch e.Kind {
	case Unsupported:
		return dir, s.skip(e)
	case File, Symlink, Fifo, Whiteout:
		return dir, s.add(e)
	case Dir:
	}
	below, err := dir.Dir(name)
	switch {
	case errors.Is(err, unix.EXDEV): // it is a mount point
		e.Kind = Unsupported
		return dir, s.skip(e)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return dir, nil
	case err != nil:
		return dir, fmt.Errorf("%.200q: %w", path, err)
	}
	if depth < maxOpenDirs {
		return dir, s.dir(below, path, depth+1)
	}
	_ = dir.Close()
	if err := s.dir(below, path, depth+1); err != nil {
		return beneath.Dir{}, err
	}
	return s.reopen(in, is)
}

// reopen opens a directory again. If it was removed or replaced, it returns none; a
// snapshot scans again then.
func (s *scan) reopen(path string, is *unix.Stat_t) (beneath.Dir, error) {
	dir, err := s.root.Dir(path)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
			return beneath.Dir{}, nil
		}
		return beneath.Dir{}, err
	}
	var at unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &at); err != nil || at.Ino != is.Ino || at.Dev != is.Dev {
		return beneath.Dir{}, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// skip records what no layer carries. It counts, since there may be as many of it as of
// anything else.
func (s *scan) skip(e Entry) error {
	if err := s.count(e); err != nil {
		return err
	}
	s.skipped = append(s.skipped, e)
	return nil
}

func (s *scan) count(e Entry) error {
	if err := s.cancelled(); err != nil {
		return err
	}
	s.left--
	s.paths -= int64(len(e.Path))
	if s.left < 0 || s.paths < 0 {
		return ErrTooMany
	}
	return nil
}

func (s *scan) add(e Entry) error {
	if err := s.count(e); err != nil {
		return err
	}
	s.found = append(s.found, e)
	return nil
}

// cancelled is the cause if the context has ended.
func cancelled(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// entryAt makes an entry of what stat has returned.
func entryAt(path string, at *unix.Stat_t) Entry {
	e := Entry{
		Path: path, Mode: at.Mode & permissions, UID: at.Uid, GID: at.Gid, Modified: Stamp(at.Mtim), Changed: Stamp(at.Ctim),
		Inode: at.Ino, Links: uint32(at.Nlink), //nolint:gosec // file systems keep no more
	}
	switch at.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.Kind = Dir
	case unix.S_IFREG:
		e.Kind, e.Size = File, at.Size
	case unix.S_IFLNK:
		e.Kind = Symlink
	case unix.S_IFIFO:
		e.Kind = Fifo
	case unix.S_IFCHR:
		if e.Kind = Unsupported; at.Rdev == 0 {
			e.Kind = Whiteout
		}
	default:
		e.Kind = Unsupported
	}
	return e
}

// permissions are the bits of a mode that a layer carries.
const permissions = 0o7777

// opaque is the attribute by which overlayfs marks an opaque directory.
const opaque = "trusted.overlay.opaque"

func isOpaque(f *os.File) (bool, error) {
	var value [8]byte
	n, err := unix.Fgetxattr(int(f.Fd()), opaque, value[:])
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ERANGE):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read whether a directory is opaque: %w", err)
	}
	return n == 1 && value[0] == 'y', nil
}
