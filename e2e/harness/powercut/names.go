//go:build linux

package powercut

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// rename is a name that the disk may not know yet.
type rename struct {
	from, to string
	inode    uint64
	// old is where the file that had the name before is kept; empty if there was
	// none.
	old string
	// dropped says that the sync of its directory failed: no later one makes it
	// durable.
	dropped bool
}

// move renames a file by do, and remembers how to undo it.
func (d *Disk) move(from, to string, do func() syscall.Errno) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return syscall.EIO
	}
	r := rename{from: from, to: to, inode: inodeOf(from)}
	if inodeOf(to) != 0 {
		d.moved++
		r.old = filepath.Join(d.aside, strconv.Itoa(d.moved))
		if os.Link(to, r.old) != nil {
			r.old = "" // a directory, of which there can be only an empty one
		}
	}
	if errno := do(); errno != 0 {
		r.forget()
		return errno
	}
	d.renames = append(d.renames, r)
	return 0
}

// settle makes the names in a directory durable.
func (d *Disk) settle(dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renames = slices.DeleteFunc(d.renames, func(r rename) bool {
		if filepath.Dir(r.to) != dir || r.dropped {
			return false
		}
		r.forget()
		return true
	})
}

// unsettle is a sync of a directory that failed: the names given in it are lost.
func (d *Disk) unsettle(dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, r := range d.renames {
		d.renames[i].dropped = r.dropped || filepath.Dir(r.to) == dir
	}
}

func (r rename) forget() {
	if r.old != "" {
		_ = os.Remove(r.old) // our own copy of a name
	}
}

// undo gives the file its old name back, and the name its old file. A file that
// has gone elsewhere since is left there.
func (r rename) undo() error {
	if inodeOf(r.to) != r.inode {
		return nil
	}
	err := os.Rename(r.to, r.from)
	if errors.Is(err, fs.ErrNotExist) { // the directory it came from is gone
		err = os.Remove(r.to)
	}
	if r.old != "" {
		err = errors.Join(err, os.Rename(r.old, r.to))
	}
	return err
}

// inodeOf is 0 if there is no such file.
func inodeOf(path string) uint64 {
	var at unix.Stat_t
	if unix.Lstat(path, &at) != nil {
		return 0
	}
	return at.Ino
}
