//go:build linux

package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"math"
	"time"
)

// policy says what an archive may hold, and what is left out of it. What no archive may
// hold (a path that leaves the root, an owner that is none, more than the limits) is
// refused under every policy.
type policy struct {
	verb string // what errors say was being done
	// canonical refuses whatever Pack does not write: names are written as Pack writes
	// them, each directory comes before what is in it, nothing comes twice and there are
	// no devices. In other archives names may be absolute or dotted, directories may come
	// late, twice or not at all, and devices and the metadata of AUFS are left out.
	canonical bool
	// records honours what Pack writes beside what every tar has: escaped names and the
	// extents of sparse files.
	records bool
	// fifos keeps named pipes. Without it they are left out, as devices are.
	fifos bool
	// typeFirst looks at the type of an entry before its name: a device is left out
	// whatever it is called, and a hard link to a name outside is refused even if the entry
	// itself would be left out. Without it a device with the name of a whiteout is one.
	typeFirst bool
	// xattrs keeps the attributes in the user namespace. No others are ever kept.
	xattrs bool
	// clampTimes gives a file whose time no file system can store the nearest that one
	// can. Without it such a time is refused.
	clampTimes bool
	maxPath    int // bytes
}

var (
	// packed is the policy for what Pack wrote, or what claims to be that.
	packed = policy{verb: "unpack", canonical: true, records: true, fifos: true, xattrs: true, maxPath: maxPath}
	// imported is the policy for a layer of any image that becomes a layer of ours.
	imported = policy{verb: "unpack an OCI layer", records: true, fifos: true, typeFirst: true, xattrs: true, maxPath: maxPath}
	// applied is the policy for a layer of any image that is applied to a root file
	// system. A sandbox has devices of its own, and no program there is given capabilities
	// by an attribute.
	applied = policy{verb: "unpack", clampTimes: true, maxPath: maxImagePath}
)

// maxImagePath is how long a path in a root file system may be: the kernel resolves it
// at once.
const maxImagePath = 4096

// item is one entry of an archive, after all checks that need no other entry.
type item struct {
	Entry
	link    bool   // it is another name of the file at to
	to      string // the target of a link, symbolic or not
	xattrs  []xattr
	extents []int64 // which parts of a file the archive holds: offset, length, …
}

// skipsType reports whether an entry is left out whatever its name says. It fails if the
// entry is refused whatever its name says.
func (p policy) skipsType(h *tar.Header) (bool, error) {
	switch {
	case !p.typeFirst:
		return false, nil
	case h.Typeflag == tar.TypeLink:
		_, err := p.clean(h.Linkname)
		return false, err
	}
	return h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock, nil
}

// skips reports whether an entry is left out.
func (p policy) skips(name nameKind, h *tar.Header) bool {
	switch {
	case p.canonical, name == whiteoutName, name == opaqueName:
		return false
	case name == aufsName:
		return true
	}
	return h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock || h.Typeflag == tar.TypeFifo && !p.fifos
}

// item reads the header of an entry that is there.
func (p policy) item(path string, h *tar.Header) (it item, err error) {
	if h.Uid < 0 || h.Uid >= math.MaxUint32 || h.Gid < 0 || h.Gid >= math.MaxUint32 {
		return it, fmt.Errorf("there is no owner %d:%d", h.Uid, h.Gid)
	}
	it.Entry = Entry{Path: path, Mode: uint32(h.Mode & permissions), UID: uint32(h.Uid), GID: uint32(h.Gid), Size: h.Size}
	if it.Modified, err = p.stamp(h.ModTime); err != nil {
		return it, err
	}
	if it.Kind, err = p.kind(h.Typeflag); err != nil {
		return it, err
	}
	if path == "." && it.Kind != Dir {
		return it, errors.New("the root must be a directory")
	}
	switch {
	case h.Typeflag == tar.TypeLink:
		it.link = true
		it.to, err = p.linkTarget(h)
	case it.Kind == Symlink:
		if it.to = h.Linkname; len(it.to) > maxTarget {
			return it, errors.New("what it leads to is too long")
		}
	case it.Kind == File:
		it.Size, it.extents = h.Size, []int64{0, h.Size}
		if p.records {
			it.Size, it.extents, err = extentsOf(h)
		}
	}
	if err == nil && p.xattrs && !it.link && (it.Kind == Dir || it.Kind == File) {
		it.xattrs, err = xattrsOf(h)
	}
	return it, err
}

func (p policy) kind(typeflag byte) (Kind, error) {
	switch typeflag {
	case tar.TypeDir:
		return Dir, nil
	case tar.TypeReg, tar.TypeLink:
		return File, nil
	case tar.TypeSymlink:
		return Symlink, nil
	case tar.TypeFifo:
		return Fifo, nil
	case tar.TypeGNUSparse:
		if !p.canonical {
			return File, nil
		}
	}
	return 0, fmt.Errorf("it is of the unknown kind %q, which no layer carries", typeflag)
}

// stamp is the time of an entry.
func (p policy) stamp(t time.Time) (Stamp, error) {
	s := Stamp{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
	if p.clampTimes {
		t = s.clamped()
		return Stamp{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}, nil
	}
	if s.Sec < earliest || s.Sec > latest {
		return Stamp{}, errors.New("its time is none that a file can have")
	}
	return s, nil
}

// The seconds that a time may have in a tar, and the last that ext4 reaches. Some file
// systems store others, which are packed as the nearest that all of them have.
const (
	earliest       = math.MinInt32
	latest         = 1<<34 - 1
	latestPortable = 1<<34 - 1<<31 - 1
)
