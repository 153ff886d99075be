//go:build linux

package layer

import (
	"archive/tar"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unpack makes a layer in an empty directory out of a tar that Pack wrote, or
// that somebody says it did. If it fails, what is there is of no use; if that is
// the fault of the tar, with one of the errors of layers.
func Unpack(ctx context.Context, from io.Reader, l Limits, dir string) error {
	r, err := openRoot(dir)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer func() { _ = r.Close() }()
	u := newUnpacker(disk{r, SpaceIn(dir)}, l)
	u.kinds["."] = Dir // it is there
	if err := eachHeader(ctx, "unpack", from, u.entry); err != nil {
		return err
	}
	if err := setDirTimes(r, u.dirs); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

// Verify fails if Unpack would refuse a tar. It writes nothing, so that it does not tell
// what a file system may refuse.
func Verify(ctx context.Context, from io.Reader, l Limits) error {
	u := newUnpacker(nowhere{}, l)
	u.kinds["."] = Dir
	return eachHeader(ctx, "verify", from, u.entry)
}

// unpacker reads a tar and checks all that it says.
type unpacker struct {
	to     target
	left   Limits
	hiding int // how many directories may hide what is below
	dirs   Index
	kinds  map[string]Kind // of every path so far
	paths  int64           // how many bytes of them there may still be
}

func newUnpacker(to target, l Limits) unpacker {
	return unpacker{to: to, left: l, hiding: l.Entries, paths: l.MaxPaths(), kinds: make(map[string]Kind)}
}

// eachHeader calls do with each header of a tar. Errors say what is done with it, and
// which header they are about.
func eachHeader(ctx context.Context, what string, from io.Reader, do func(*tar.Header, io.Reader) error) error {
	archive := &archiveReader{from: from}
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, archive.classify(err))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if err := do(h, in); err != nil {
			return fmt.Errorf("%s %.200q: %w", what, h.Name, archive.classify(err))
		}
	}
}

// know notes that there is such a path. Whoever packs chooses them, and they are held
// to what a scan takes.
func (u *unpacker) know(path string, kind Kind) error {
	if u.paths -= int64(len(path)); u.paths < 0 {
		return ErrTooMany
	}
	u.kinds[path] = kind
	return nil
}

func (u *unpacker) entry(h *tar.Header, in io.Reader) error {
	path, says, err := parseName(h.Name, h.PAXRecords[recordName])
	if err != nil {
		return err
	}
	left := &u.left.Entries
	if says == opaqueName { // which a scan finds with its directory
		left = &u.hiding
	}
	if *left--; *left < 0 {
		return ErrTooMany
	}
	if says == opaqueName {
		if u.kinds[path] != Dir {
			return errors.New("it hides what is below something else than a directory that came before")
		}
		return u.to.setOpaque(path)
	}
	e := Entry{Path: path, Kind: Whiteout}
	if says == entryName {
		if e, err = entryOf(path, h); err != nil {
			return err
		}
	}
	if kind, ok := u.kinds[e.Path]; ok && (e.Path != "." || kind != e.Kind || len(u.dirs) > 0) {
		return errors.New("it is there twice")
	}
	if u.kinds[parent(e.Path)] != Dir {
		return errors.New("it comes before its directory")
	}
	if err := u.know(e.Path, e.Kind); err != nil {
		return err
	}
	return u.put(e, h, in)
}

// entryOf reads what a tar says of an entry.
func entryOf(path string, h *tar.Header) (e Entry, err error) {
	if h.Uid < 0 || h.Uid >= math.MaxUint32 || h.Gid < 0 || h.Gid >= math.MaxUint32 {
		return e, fmt.Errorf("there is no owner %d:%d", h.Uid, h.Gid)
	}
	e = Entry{Path: path, Mode: uint32(h.Mode & permissions), UID: uint32(h.Uid), GID: uint32(h.Gid), Size: h.Size}
	if e.Modified, err = stampOf(h.ModTime); err != nil {
		return e, err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		e.Kind = Dir
	case tar.TypeReg:
		e.Kind = File
	case tar.TypeLink:
		e.Kind = File
	case tar.TypeSymlink:
		e.Kind = Symlink
	case tar.TypeFifo:
		e.Kind = Fifo
	default:
		return e, fmt.Errorf("it is of the kind %q, which no layer carries", h.Typeflag)
	}
	if path == "." && e.Kind != Dir {
		return e, errors.New("the root must be a directory")
	}
	return e, nil
}

// stampOf is a time that file systems can keep.
func stampOf(t time.Time) (Stamp, error) {
	if s := t.Unix(); s < earliest || s > latest {
		return Stamp{}, errors.New("its time is none that a file can have")
	}
	return Stamp{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}, nil
}

// The seconds that a time may have in a tar, and the last that ext4 reaches. Some file
// systems keep others, which are packed as the nearest that all of them have.
const (
	earliest = math.MinInt32
	latest   = 1<<34 - 1
	latestPortable = 1<<34 - 1<<31 - 1
)

func (u *unpacker) put(e Entry, h *tar.Header, in io.Reader) error {
	switch {
	case e.Kind == Whiteout:
		return u.to.mkWhiteout(e.Path)
	case e.Kind == Dir:
		return u.dir(e, h)
	case e.Kind == Symlink:
		if len(h.Linkname) > maxTarget {
			return errors.New("what it leads to is too long")
		}
		return u.to.symlink(e, h.Linkname)
	case e.Kind == Fifo:
		return u.to.fifo(e)
	case h.Typeflag == tar.TypeLink:
		return u.link(e, h)
	}
	return u.file(e, h, in)
}

func (u *unpacker) dir(e Entry, h *tar.Header) error {
	all, err := xattrsOf(h)
	if err != nil {
		return err
	}
	u.dirs = append(u.dirs, e)
	return u.to.dir(e, all)
}

// link gives a file that came before another name.
func (u *unpacker) link(e Entry, h *tar.Header) error {
	to, says, err := parseName(h.Linkname, h.PAXRecords[recordLink])
	if err != nil || says != entryName || u.kinds[to] != File || to == e.Path {
		return fmt.Errorf("it is a link to %.200q, which is no file that came before", h.Linkname)
	}
	return u.to.link(to, e.Path)
}

func (u *unpacker) file(e Entry, h *tar.Header, in io.Reader) error {
	size, pieces, err := extentsOf(h)
	if err != nil {
		return err
	}
	if u.left.Bytes -= size; u.left.Bytes < 0 {
		return ErrTooBig
	}
	e.Size = size
	all, err := xattrsOf(h)
	if err != nil {
		return err
	}
	return u.to.file(e, all, pieces, in)
}

// extentsOf says how large a file is, and which parts of it are in the tar.
func extentsOf(h *tar.Header) (size int64, pieces []int64, err error) {
	text, ok := h.PAXRecords[recordSize]
	if !ok {
		return h.Size, []int64{0, h.Size}, nil
	}
	wrong := errors.New("its pieces make no file")
	if size, err = strconv.ParseInt(text, 10, 64); err != nil || size < 0 {
		return 0, nil, wrong
	}
	end, sum := int64(0), int64(0)
	for word := range strings.SplitSeq(h.PAXRecords[recordExtents], ",") {
		if word == "" && h.PAXRecords[recordExtents] == "" {
			break
		}
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 || len(pieces) >= maxExtents {
			return 0, nil, wrong
		}
		if len(pieces)%2 == 0 {
			if n < end {
				return 0, nil, wrong
			}
		} else {
			at := pieces[len(pieces)-1]
			if n > size-at {
				return 0, nil, wrong
			}
			end, sum = at+n, sum+n
		}
		pieces = append(pieces, n)
	}
	if len(pieces)%2 != 0 || sum != h.Size {
		return 0, nil, wrong
	}
	return size, pieces, nil
}

// xattrsOf reads what a tar says people had attached, and nothing else.
func xattrsOf(h *tar.Header) (all []xattr, err error) {
	add := func(name, value string) {
		rest, ok := strings.CutPrefix(name, userXattr)
		switch {
		case !ok:
		case len(all) == maxXattrs || len(value) > maxXattrLen || rest == "" || len(name) > maxXattrName || strings.ContainsRune(rest, 0):
			err = errors.New("what is attached to it is too much")
		default:
			all = append(all, xattr{name, value})
		}
	}
	for key, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(key, recordXattr); ok {
			add(name, value)
		}
	}
	for rest := h.PAXRecords[recordXattrs]; rest != ""; {
		var pair [2]string
		for i := range pair {
			n, size := binary.Uvarint([]byte(rest[:min(len(rest), binary.MaxVarintLen64)]))
			if size <= 0 || n > uint64(len(rest)-size) { //nolint:gosec // size is no more than there is
				return nil, errors.New("what is attached to it has no end")
			}
			pair[i], rest = rest[size:size+int(n)], rest[size+int(n):] //nolint:gosec // no longer than the rest
		}
		if add(pair[0], pair[1]); err != nil {
			break
		}
	}
	return all, err
}
