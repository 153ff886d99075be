//go:build linux

package layer

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Scan looks at everything in a directory. What lies too deep, and what no layer
// carries, is in the second list and not in the first.
func Scan(dir string, l Limits) (Index, []Entry, error) { return scanLike(dir, l, 0) }

// scanLike is Scan of a directory that has about so many entries.
func scanLike(dir string, l Limits, about int) (Index, []Entry, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("scan: %w", err)
	}
	w := walk{others: make(chan struct{}, runtime.GOMAXPROCS(0)-1)}
	w.left.Store(int64(l.Entries))
	s := scan{walk: &w}
	s.err = s.dir(root, ".", 0)
	found, skipped := make(Index, 0, min(about, l.Entries)), []Entry(nil)
	if err := s.collect(&found, &skipped); err != nil {
		return nil, nil, fmt.Errorf("scan: %w", err)
	}
	slices.SortFunc(skipped, func(a, b Entry) int { return compare(a.Path, b.Path) })
	return found, skipped, nil
}

// walk is what those have in common who look at a directory together: who waits
// for it may hold up everything else.
type walk struct {
	others chan struct{} // holds one for each that helps
	left   atomic.Int64
}

// scan is what one of them has found.
type scan struct {
	*walk
	found   Index
	skipped []Entry
	parts   []part
	err     error
}

// part is a directory that another one looks at, and where it belongs.
type part struct {
	at   int
	scan *scan
	done chan struct{}
}

// collect puts together what was found, once all have ended.
func (s *scan) collect(found *Index, skipped *[]Entry) error {
	err, at := s.err, 0
	for _, p := range s.parts {
		*found = append(*found, s.found[at:p.at]...)
		at = p.at
		<-p.done
		err = errors.Join(err, p.scan.collect(found, skipped))
	}
	*found, *skipped = append(*found, s.found[at:]...), append(*skipped, s.skipped...)
	return err
}

// below looks at an open directory, or has somebody else do so who has nothing to
// do.
func (s *scan) below(f *os.File, path string, depth int) error {
	select {
	case s.others <- struct{}{}:
	default:
		return s.dir(f, path, depth)
	}
	p := part{at: len(s.found), scan: &scan{walk: s.walk}, done: make(chan struct{})}
	s.parts = append(s.parts, p)
	go func() {
		defer close(p.done)
		p.scan.err = p.scan.dir(f, path, depth)
		<-s.others
	}()
	return nil
}

// dir looks at an open directory, which it closes.
func (s *scan) dir(f *os.File, path string, depth int) error {
	defer func() { _ = f.Close() }()
	var at unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &at); err != nil {
		return err
	}
	e := entryAt(path, &at)
	var err error
	if e.Opaque, err = isOpaque(f); err != nil {
		return err
	}
	if err := s.add(e); err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err != nil && !errors.Is(err, unix.ENOENT) { // then the directory has gone
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := s.name(f, join(path, name), name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// name looks at one name in a directory. One that is gone meanwhile was never
// there.
func (s *scan) name(dir *os.File, path, name string, depth int) error {
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
		s.skipped = append(s.skipped, e)
		return nil
	}
	if e.Kind != Dir {
		return s.add(e)
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil
	case err != nil:
		return fmt.Errorf("%.200q: %w", path, err)
	}
	return s.below(os.NewFile(uintptr(fd), name), path, depth)
}

func (s *scan) add(e Entry) error {
	if s.left.Add(-1) < 0 {
		return ErrTooMany
	}
	s.found = append(s.found, e)
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
