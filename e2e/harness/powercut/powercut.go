//go:build linux

// Package powercut is a file system that forgets what was not synced.
//
// It passes through to a real directory and remembers, in memory, what each file
// held at its last sync. Cut restores that: what was written or truncated since is
// lost, as when the power fails, and so is a name given by renaming whose directory
// was not synced. Making and removing files passes through at once.
//
// A sync that fails drops what it should have written, as kernels do: the pages are
// clean from then on, every reader still sees them, and the next sync succeeds
// without them. Only what is written again can become durable. The names of a
// directory whose sync failed are lost in the same way.
//
// With Inject it is also a disk that is full, slow, read-only or broken.
package powercut

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Disk is a mounted directory.
type Disk struct {
	server *fuse.Server
	root   *node
	dir    string // where it really is
	aside  string // what renames have displaced

	mu      sync.Mutex
	off     bool            // guarded by mu; the power is off
	files   map[uint64]*lag // guarded by mu; files ahead of the disk, by inode
	renames []rename        // guarded by mu; names that are not synced, oldest first
	moved   int             // guarded by mu; numbers what is aside
	fault   Fault           // guarded by mu
}

// Unsynced is something that was given to the disk and not synced: a page of a
// file, or the name a file was given.
type Unsynced struct {
	Path string
	// Page is the number of the page; Name if it is the name.
	Page int64
	// Last says that no page behind it is unsynced.
	Last bool
}

// Name is the page number of what is not a page.
const Name = -1

// PageSize is how much a disk writes atomically, unless a test tears pages.
const PageSize = 4096

// Keep says how many bytes of something reached the disk all the same. Of a
// name, any but none is all of it.
type Keep func(Unsynced) int

// Mount shows dir at at. It needs root and /dev/fuse.
func Mount(dir, at string) (*Disk, error) {
	loop, err := fs.NewLoopbackRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", dir, err)
	}
	inner, ok := loop.(*fs.LoopbackNode)
	if !ok {
		return nil, fmt.Errorf("mount %s: the root is a %T", dir, loop)
	}
	d := &Disk{dir: dir, files: make(map[uint64]*lag)}
	// Beside the directory, so that a file can be linked there.
	if d.aside, err = os.MkdirTemp(filepath.Dir(dir), "displaced-"); err != nil {
		return nil, fmt.Errorf("mount %s: %w", dir, err)
	}
	d.root = &node{LoopbackNode: inner, disk: d}
	o := fs.Options{NullPermissions: true}
	o.DirectMount, o.FsName, o.Name = true, dir, "powercut"
	if d.server, err = fs.Mount(at, d.root, &o); err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s: %w", dir, err), os.RemoveAll(d.aside))
	}
	return d, nil
}

// Unsynced counts the pages that a cut would lose.
func (d *Disk) Unsynced() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, l := range d.files {
		n += len(l.pages) + len(l.dropped)
	}
	return n
}

// Cut drops what was not synced and refuses everything from then on. A disk
// writes what it was given in any order, and may stop in the middle of a page:
// keep, if not nil, is asked how much of it was written all the same.
func (d *Disk) Cut(keep Keep) error {
	if keep == nil {
		keep = func(Unsynced) int { return 0 }
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	var errs []error
	for _, inode := range slices.Sorted(maps.Keys(d.files)) {
		errs = append(errs, d.files[inode].lose(d.below, keep), d.files[inode].file.Close())
	}
	clear(d.files)
	for _, r := range slices.Backward(d.renames) {
		if r.dropped || keep(Unsynced{Path: d.below(r.to), Page: Name}) == 0 {
			errs = append(errs, r.undo())
		}
	}
	d.renames = nil
	return errors.Join(errs...)
}

// below is a path as seen from the mounted directory.
func (d *Disk) below(path string) string {
	rel, err := filepath.Rel(d.dir, path)
	if err != nil {
		return path
	}
	return rel
}

// Close unmounts. What is in the directory then is what a cut would have left,
// or everything if there was none.
func (d *Disk) Close() error {
	var err error
	for range 500 { // a process that was killed may still be on its way out
		if err = d.server.Unmount(); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.files {
		err = errors.Join(err, l.file.Close())
	}
	clear(d.files)
	return errors.Join(err, os.RemoveAll(d.aside))
}

// ahead returns how far f is ahead of the disk, to be told before it is changed.
// It must be called with mu held.
func (d *Disk) ahead(f *os.File) (*lag, error) {
	var at unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &at); err != nil {
		return nil, err
	}
	if l := d.files[at.Ino]; l != nil {
		return l, nil
	}
	// A descriptor of our own finds the file under any name, and keeps its inode
	// from being used again.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l := &lag{file: os.NewFile(uintptr(fd), f.Name()), size: at.Size, pages: make(map[int64][]byte), dropped: make(map[int64][]byte)}
	d.files[at.Ino] = l
	return l, nil
}

// write writes to f, which keeps what it held.
func (d *Disk) write(f *os.File, data []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return 0, syscall.EIO
	}
	l, err := d.ahead(f)
	if err == nil {
		err = l.touch(off, off+int64(len(data)))
	}
	if err != nil {
		return 0, err
	}
	return f.WriteAt(data, off)
}

// truncate changes the size of f, which keeps what it held.
func (d *Disk) truncate(f *os.File, size int64) error {
	if err := d.ask(Truncate, f.Name(), nil); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return syscall.EIO
	}
	l, err := d.ahead(f)
	if err == nil {
		err = l.shorten(size)
	}
	if err != nil {
		return err
	}
	return f.Truncate(size)
}

// allocate has room for a part of f, or takes out what is in it, which f keeps.
func (d *Disk) allocate(f *os.File, mode uint32, off, size int64) error {
	if err := d.ask(Write, f.Name(), nil); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return syscall.EIO
	}
	l, err := d.ahead(f)
	if err == nil && mode&unix.FALLOC_FL_PUNCH_HOLE != 0 {
		err = l.touchData(off, off+size)
	}
	if err != nil {
		return err
	}
	return unix.Fallocate(int(f.Fd()), mode, off, size)
}

// sync makes durable what f holds, or drops it for good.
func (d *Disk) sync(f *os.File) error {
	failed := d.ask(Sync, f.Name(), nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	var at unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &at); err != nil {
		return err
	}
	l := d.files[at.Ino]
	switch {
	case errors.Is(failed, Unanswered):
		return syscall.EIO
	case failed != nil && l != nil:
		l.drop()
	}
	switch {
	case failed != nil:
		return failed
	case d.off:
		return syscall.EIO
	case l == nil:
		return nil
	}
	durable, err := l.settle()
	if err != nil || !durable {
		return err
	}
	delete(d.files, at.Ino)
	return l.file.Close()
}
