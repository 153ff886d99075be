//go:build linux

package powercut

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
)

// Op is what is asked of the disk.
type Op string

// The ops.
const (
	Read     Op = "read"
	Write    Op = "write"
	Truncate Op = "truncate"
	Sync     Op = "sync"     // a file
	SyncDir  Op = "sync dir" // the names in a directory
	Make     Op = "make"     // a file or a directory
	Rename   Op = "rename"
	Remove   Op = "remove"
)

// Changes reports whether the disk is asked for more than what it holds.
func (o Op) Changes() bool { return o != Read && o != Sync && o != SyncDir }

// Request is one thing asked of the disk.
type Request struct {
	Op Op
	// Path is relative to the mounted directory; of a rename it is the new name.
	Path string
	// Data is what was read or is to be written.
	Data []byte
}

// Fault says what becomes of a request: nil lets it pass, a syscall.Errno is its
// answer, Short takes only a part of a write. A fault that does not return is a
// disk that stalls.
type Fault func(Request) error

// Short is how many bytes of a write are taken.
type Short int

func (s Short) Error() string { return fmt.Sprintf("only %d bytes were taken", int(s)) }

// Unanswered is the answer of a Fault to a sync which the power cut comes before:
// the caller hears that it failed, and what was to be written is decided by Cut.
const Unanswered = unanswered("the power failed first")

type unanswered string

func (u unanswered) Error() string { return string(u) }

// Inject has f decide about every request from now on; nil is a sound disk.
// What the kernel remembers of files is dropped, so that f hears of the next
// time they are read.
func (d *Disk) Inject(f Fault) {
	d.mu.Lock()
	d.fault = f
	d.mu.Unlock()
	forget(d.root.EmbeddedInode())
}

// forget drops what the kernel has cached below n, but for the index of the
// database's log: it is shared memory and not a file.
func forget(n *fs.Inode) {
	for name, child := range n.Children() {
		if !strings.HasSuffix(name, "-shm") {
			_ = child.NotifyContent(0, 0) // not cached, not there
			forget(child)
		}
	}
}

// ask holds a request against the fault of the day.
func (d *Disk) ask(op Op, path string, data []byte) error {
	d.mu.Lock()
	off, fault := d.off, d.fault
	d.mu.Unlock()
	switch {
	case off && op != Read:
		return syscall.EIO
	case fault == nil:
		return nil
	}
	return fault(Request{Op: op, Path: d.below(path), Data: data})
}

// allow asks and gives the answer as the kernel wants it.
func (d *Disk) allow(op Op, path string) syscall.Errno { return fs.ToErrno(d.ask(op, path, nil)) }

// taken is how much of data a write may take.
func (d *Disk) taken(path string, data []byte) ([]byte, error) {
	err := d.ask(Write, path, data)
	if n, ok := errors.AsType[Short](err); ok {
		return data[:min(max(int(n), 0), len(data))], nil
	}
	return data, err
}
