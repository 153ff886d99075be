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

// Scan looks at everything in a directory. What lies too deep, what is mounted
// there, and what no layer carries is in the second list and not in the first.
func Scan(ctx context.Context, dir string, l Limits) (Index, []Entry, error) {
	return scanLike(ctx, dir, l, 0)
}

// scanLike is Scan of a directory that has about so many entries.
func scanLike(ctx context.Context, dir string, l Limits, about int) (Index, []Entry, error) {
	root, err := beneath.Open(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("scan: %w", err)
	}
	s := scan{stopped: func() error { return stopped(ctx) }, left: l.Entries, found: make(Index, 0, min(about, l.Entries))}
	if err := s.dir(root, ".", 0); err != nil {
		return nil, nil, fmt.Errorf("scan: %w", err)
	}
	return s.found, s.skipped, nil
}

type scan struct {
	stopped func() error // whether nobody waits for it any more
	found   Index
	skipped []Entry
	left    int
	listed  int // names of all directories on the way down that were not looked at yet
	named   int // bytes of paths
}

// maxNamed bounds the bytes of all paths together. Whoever writes to the directory
// chooses them, and a link with a long path costs him next to nothing.
const maxNamed = 64 << 20

// dir looks at an open directory, which it closes.
func (s *scan) dir(f beneath.Dir, path string, depth int) error {
	defer func() { _ = f.Close() }()
	var at unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &at); err != nil {
		return err
	}
	e := entryAt(path, &at)
	var err error
	if e.Opaque, err = isOpaque(f.File); err != nil {
		return err
	}
	if err := s.add(e); err != nil {
		return err
	}
	names, err := f.Names(s.left - s.listed)
	if errors.Is(err, beneath.ErrTooMany) {
		err = ErrTooMany
	}
	if err != nil {
		return err
	}
	slices.Sort(names)
	s.listed += len(names)
	for _, name := range names {
		s.listed--
		if err := s.name(f, join(path, name), name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// name looks at one name in a directory. One that is gone meanwhile was never
// there.
func (s *scan) name(dir beneath.Dir, path, name string, depth int) error {
	var at unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &at, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%.200q: %w", path, err)
	}
	e := entryAt(path, &at)
	if e.Kind == Other || len(path) > maxPath || depth > maxDepth {
		return s.skip(e)
	}
	if e.Kind != Dir {
		return s.add(e)
	}
	below, err := dir.Dir(name)
	switch {
	case errors.Is(err, unix.EXDEV): // something else is mounted there
		e.Kind = Other
		return s.skip(e)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil
	case err != nil:
		return fmt.Errorf("%.200q: %w", path, err)
	}
	return s.dir(below, path, depth)
}

// skip notes what no layer carries. It counts: there may be as many of it as of
// anything else.
func (s *scan) skip(e Entry) error {
	if err := s.count(e); err != nil {
		return err
	}
	s.skipped = append(s.skipped, e)
	return nil
}

func (s *scan) count(e Entry) error {
	if err := s.stopped(); err != nil {
		return err
	}
	s.left--
	s.named += len(e.Path)
	if s.left < 0 || s.named > maxNamed {
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

// stopped is why nobody waits any more for what somebody has asked for.
func stopped(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// entryAt is an entry as a look at it tells.
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
		if e.Kind = Other; at.Rdev == 0 {
			e.Kind = Gone
		}
	default:
		e.Kind = Other
	}
	return e
}

// permissions are the bits of a mode that a file keeps.
const permissions = 0o7777

// opaque is how overlayfs marks a directory that hides what is below it.
const opaque = "trusted.overlay.opaque"

func isOpaque(f *os.File) (bool, error) {
	var value [8]byte
	n, err := unix.Fgetxattr(int(f.Fd()), opaque, value[:])
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ERANGE):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look whether a directory is opaque: %w", err)
	}
	return n == 1 && value[0] == 'y', nil
}
