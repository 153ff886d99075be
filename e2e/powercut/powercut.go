//go:build linux

// Package powercut is a file system that forgets what was not synced.
//
// It passes through to a real directory and remembers, in memory, what each file
// last held when it was synced. Cut puts that back: what was written or
// truncated since is lost, as when the power fails. Making, renaming and
// removing files passes through at once: a directory entry counts as durable,
// and whoever relies on the order of those tests that order by itself.
package powercut

import (
	"errors"
	"fmt"
	"maps"
	"os"
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

	mu    sync.Mutex
	off   bool            // guarded by mu; the power is off
	files map[uint64]*lag // guarded by mu; files ahead of the disk, by inode
}

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
	d := &Disk{files: make(map[uint64]*lag)}
	o := fs.Options{NullPermissions: true}
	o.DirectMount, o.FsName, o.Name = true, dir, "powercut"
	if d.server, err = fs.Mount(at, &node{LoopbackNode: inner, disk: d}, &o); err != nil {
		return nil, fmt.Errorf("mount %s: %w", dir, err)
	}
	return d, nil
}

// Unsynced counts the pages that a cut would lose.
func (d *Disk) Unsynced() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, l := range d.files {
		n += len(l.pages)
	}
	return n
}

// Cut drops what was not synced and refuses everything from then on. A disk
// writes what it was given in any order: keep, if not nil, is asked for each
// unsynced page whether it was written all the same.
func (d *Disk) Cut(keep func() bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	var errs []error
	for _, inode := range slices.Sorted(maps.Keys(d.files)) {
		errs = append(errs, d.files[inode].lose(keep), d.files[inode].file.Close())
	}
	clear(d.files)
	return errors.Join(errs...)
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
	return err
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
	l := &lag{file: os.NewFile(uintptr(fd), f.Name()), size: at.Size, pages: make(map[int64][]byte)}
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return syscall.EIO
	}
	l, err := d.ahead(f)
	if err == nil && size < l.size {
		l.shrunk, err = true, l.touch(size, l.size)
	}
	if err != nil {
		return err
	}
	return f.Truncate(size)
}

// sync makes durable what f holds.
func (d *Disk) sync(f *os.File) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return syscall.EIO
	}
	var at unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &at); err != nil {
		return err
	}
	l := d.files[at.Ino]
	if l == nil {
		return nil
	}
	delete(d.files, at.Ino)
	return l.file.Close()
}
