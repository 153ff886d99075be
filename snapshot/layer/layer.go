// Package layer is what one step of a workspace line consists of.
//
// On disk a layer is a directory as overlayfs has its upper one: what was written
// lies in it as it is; what was removed is a character device 0:0 of that name; a
// directory that hides everything below it has the attribute
// trusted.overlay.opaque. So layers are mounted over each other as they are. In
// transit a layer is that of the OCI image format: a tar, in which what was
// removed is an empty file .wh.NAME.
//
// Layers come from workspaces in which anybody may have made anything, and from
// archives that anybody may have written. Names are only ever resolved below the
// directory at hand, and no link is followed.
package layer

import (
	"cmp"
	"errors"
	"math"
	"strings"
)

// Kind is what a name in a layer stands for.
type Kind uint8

// The kinds.
const (
	Dir Kind = iota + 1
	File
	Symlink
	Fifo
	Whiteout    // what lower layers have under this name is hidden
	Unsupported // a socket, a device or what is mounted there, which no layer carries
)

// Entry is one name in a directory, and what a look at it tells.
type Entry struct {
	Path     string // from the root of the layer, which is "."
	Kind     Kind
	Mode     uint32 // permissions
	UID, GID uint32
	Size     int64
	Modified Stamp
	// Changed, Inode and Links tell whether it is what it was, and who shares it.
	Changed Stamp
	Inode   uint64
	Links   uint32
	// Opaque is a directory that hides what lower layers have in it.
	Opaque bool
}

// Stamp is a time as file systems keep it.
type Stamp struct{ Sec, Nsec int64 }

// unchanged reports whether nobody has touched an entry since.
func (e Entry) unchanged(o Entry) bool {
	if e.Kind == Whiteout && o.Kind == Whiteout {
		return true // all of them share one inode, and its times
	}
	o.Links = e.Links
	return e == o
}

// Index is every entry of a directory, each before what is in it, names in order.
type Index []Entry

// compare orders paths as a walk meets them.
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

// rank puts the end of a name before everything, and what is in a directory
// before its neighbours.
func rank(s string, n int) int {
	switch {
	case n == len(s):
		return 0
	case s[n] == '/':
		return 1
	}
	return int(s[n]) + 2 //nolint:mnd // after the two above
}

// Restored is a path at which a snapshot's version is put back.
type Restored struct {
	Path string `json:"path"`
	// Kept is the path of what was found there instead, empty if nothing was.
	SavedAs string `json:"kept,omitempty"`
	// Outside says that there was no room for that, and it is kept outside of the directory.
	Outside bool `json:"outside,omitempty"`
}

// Limits bounds what a layer may hold.
type Limits struct {
	Entries int
	Bytes   int64 // of files, as large as they say they are
	// Paths bounds the bytes of all paths together; zero is DefaultPaths. Whoever writes
	// to a directory chooses them, and a link with a long path costs him next to nothing.
	// It also bounds how deep directories lie in each other, and the work of looking up
	// all paths.
	Paths int64
}

// DefaultPaths is the limit of Paths where nothing else is said.
const DefaultPaths = 64 << 20

// Unlimited is for what was made of layers that are kept. Each of them was within its
// limits then; all of them together need not be.
var Unlimited = Limits{Entries: math.MaxInt, Bytes: math.MaxInt64, Paths: math.MaxInt64}

// MaxPaths is how many bytes all paths may be.
func (l Limits) MaxPaths() int64 { return cmp.Or(l.Paths, DefaultPaths) }

// Check fails unless so much is within the limits. Entries and paths count the root.
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
	// maxPath is longer than any path can be where all of them together, each of a
	// directory of its own, are within what a scan takes.
	maxPath = 256 << 10
	// maxTarget is how long what a symbolic link leads to may be.
	maxTarget = 4096
)

// Errors of layers that are too much, or wrong.
var (
	ErrTooMany   = errors.New("the layer has too many entries")
	ErrTooBig    = errors.New("the layer is too large")
	ErrMalformed = errors.New("it is no layer")
	// ErrNoSpace means that a directory's file system has no room for what it has lost.
	ErrNoSpace = errors.New("there is no room for what was lost")
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
