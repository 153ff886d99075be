// Package layer captures, packs, unpacks, merges and compares the layers of workspaces.
//
// On disk a layer is a directory in the format of an overlayfs upper directory: what was
// written lies in it as it is; what was removed is a whiteout, a character device 0:0 of
// that name; an opaque directory has the attribute trusted.overlay.opaque. So layers are
// mounted over each other as they are. In transit a layer is an OCI layer: a tar, in which
// a whiteout is an empty file .wh.NAME.
//
// Layers come from workspaces in which a sandbox may have made anything, and from archives
// of unknown authors. Names are only ever resolved beneath the directory at hand, and no
// link is followed; only in a RootFS are links followed, inside of it. One unpacker reads
// all archives: see policy for what each kind may hold.
package layer

import (
	"cmp"
	"errors"
	"math"
	"strings"
)

// Kind is the kind of an entry.
type Kind uint8

// The kinds.
const (
	Dir Kind = iota + 1
	File
	Symlink
	Fifo
	Whiteout    // it hides what lower layers have under this name
	Unsupported // a socket, a device or what is mounted there, which no layer carries
)

// Entry is one name in a directory, and its metadata.
type Entry struct {
	Path     string // from the root of the layer, which is "."
	Kind     Kind
	Mode     uint32 // permissions
	UID, GID uint32
	Size     int64
	Modified Stamp
	// Changed, Inode and Links tell whether it has changed, and what shares its inode.
	Changed Stamp
	Inode   uint64
	Links   uint32
	// Opaque says that a directory hides what lower layers have in it.
	Opaque bool
}

// Stamp is a time as file systems store it.
type Stamp struct{ Sec, Nsec int64 }

// unchanged reports whether an entry is the same, and was not touched in between.
func (e Entry) unchanged(o Entry) bool {
	if e.Kind == Whiteout && o.Kind == Whiteout {
		return true // all whiteouts share one inode, and its times
	}
	o.Links = e.Links
	return e == o
}

// Index is every entry of a directory in the order of a walk: each directory before what
// is in it, names sorted.
type Index []Entry

// compare orders paths as a walk finds them.
func compare(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == ".":
		return -1
	case b == ".":
		return 1
	}
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return cmp.Compare(rank(a, n), rank(b, n))
}

// rank sorts the end of a path before everything, and what is in a directory before the
// names beside the directory.
func rank(s string, n int) int {
	switch {
	case n == len(s):
		return 0
	case s[n] == '/':
		return 1
	}
	return int(s[n]) + 2 //nolint:mnd // after the two above
}

// Restored is a path at which the snapshot's version was restored.
type Restored struct {
	Path string `json:"path"`
	// SavedAs is the path that what was found there was moved to, empty if nothing was.
	SavedAs string `json:"kept,omitempty"`
	// Outside says that it was moved out of the directory, for want of space.
	Outside bool `json:"outside,omitempty"`
}

// Limits bounds what a layer may hold.
type Limits struct {
	Entries int
	Bytes   int64 // of files, as large as they say they are
	// Paths bounds the bytes of all paths together; zero is DefaultPaths. Programs that
	// write to a directory choose them, and a link with a long path costs next to nothing.
	// It also bounds the depth of directories, and the work of resolving all paths.
	Paths int64
}

// DefaultPaths is the default of Limits.Paths.
const DefaultPaths = 64 << 20

// Unlimited is for what is made of stored layers. Each of them was within its limits when
// it was stored; all of them together need not be.
var Unlimited = Limits{Entries: math.MaxInt, Bytes: math.MaxInt64, Paths: math.MaxInt64}

// MaxPaths is how many bytes all paths together may have.
func (l Limits) MaxPaths() int64 { return cmp.Or(l.Paths, DefaultPaths) }

// Check fails unless the counts are within the limits. Entries and paths count the root.
func (l Limits) Check(entries int, bytes, paths int64) error {
	switch {
	case entries > l.Entries, paths > l.MaxPaths():
		return ErrTooMany
	case bytes > l.Bytes:
		return ErrTooBig
	}
	return nil
}

const (
	// maxPath is longer than any path can be if it and the directories above it are within
	// DefaultPaths.
	maxPath = 256 << 10
	// maxTarget is how long the target of a symbolic link may be.
	maxTarget = 4096
)

// Errors of layers that are too large, or malformed.
var (
	ErrTooMany   = errors.New("the layer has too many entries")
	ErrTooBig    = errors.New("the layer is too large")
	ErrMalformed = errors.New("the layer is malformed")
	// ErrNoSpace means that a file system has no space for the files to restore.
	ErrNoSpace = errors.New("there is no space for the files to restore")
)

// parent is the path of the directory that an entry is in.
func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return "."
}

// base is the last name of a path.
func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// join is a name in a directory.
func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
