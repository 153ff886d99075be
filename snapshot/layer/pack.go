//go:build linux

package layer

import (
	"archive/tar"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The records and limits of the tar of a layer.
const (
	// recordSize and recordExtents describe a sparse file, of which only the extents with
	// data are in the tar: its size, and the offset and length of each extent.
	recordSize    = "DORMOUSE.size"
	recordExtents = "DORMOUSE.pieces"
	recordXattr   = "SCHILY.xattr."
	// recordXattrs has extended attributes: names and values in turn, each after its length.
	recordXattrs = "DORMOUSE.attrs"

	// sparseFrom is how many bytes of a file must be holes for it to be packed as sparse.
	sparseFrom = 1 << 20
	maxExtents = 16 << 10
)

// Pack writes a layer as a tar. The tar of the same layer is always the same bytes.
func Pack(ctx context.Context, dir string, l Limits, w io.Writer) error {
	entries, skipped, err := Scan(ctx, dir, l)
	if err != nil {
		return err
	}
	if len(skipped) > 0 {
		return fmt.Errorf("pack: %.200q is nothing that a layer carries", skipped[0].Path)
	}
	return entries.Pack(ctx, dir, l, w)
}

// Pack writes a layer that was scanned as a tar.
func (all Index) Pack(ctx context.Context, dir string, l Limits, w io.Writer) error {
	r, err := openRoot(dir)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	defer func() { _ = r.Close() }()
	p := packer{root: r, out: tar.NewWriter(w), links: make(map[uint64]string), left: l.Bytes}
	for _, e := range all {
		if ctx.Err() != nil {
			return fmt.Errorf("pack: %w", context.Cause(ctx))
		}
		err := p.entry(e)
		if errors.Is(err, tar.ErrFieldTooLong) {
			err = fmt.Errorf("%w: %w", ErrTooBig, err)
		}
		if err != nil {
			return fmt.Errorf("pack %.200q: %w", e.Path, err)
		}
	}
	if err := p.out.Close(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

type packer struct {
	root  root
	out   *tar.Writer
	links map[uint64]string
	left  int64
}

func (p *packer) entry(e Entry) error {
	if len(e.Path) > maxPath {
		return fmt.Errorf("%w: %w", ErrTooMany, errLongName)
	}
	h := header(e)
	switch e.Kind {
	case Whiteout:
		return p.out.WriteHeader(markerHeader(e.Path, whiteoutName))
	case Dir:
		return p.dir(e, h)
	case Symlink:
		return p.symlink(e, h)
	case Fifo:
		h.Typeflag = tar.TypeFifo
		return p.out.WriteHeader(h)
	case File:
		return p.file(e, h)
	case Unsupported:
	}
	return fmt.Errorf("it is of the kind %d, which no layer carries", e.Kind)
}

// header is the header of an entry, with what all kinds have.
func header(e Entry) *tar.Header {
	h := markerHeader(e.Path, entryName)
	h.Mode, h.Uid, h.Gid, h.ModTime = int64(e.Mode), int(e.UID), int(e.GID), e.Modified.clamped()
	return h
}

// clamped is the nearest time that every file system can store.
func (s Stamp) clamped() time.Time {
	switch t := time.Unix(s.Sec, s.Nsec); {
	case s.Sec < earliest:
		return time.Unix(earliest, 0)
	case s.Sec > latestPortable:
		return time.Unix(latestPortable, 0)
	default:
		return t
	}
}

// markerHeader is a header that only has a name.
func markerHeader(path string, f nameKind) *tar.Header {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: f.encode(path), PAXRecords: make(map[string]string), Format: tar.FormatPAX}
	if needsEscape(path) {
		h.PAXRecords[recordName] = path
	}
	return h
}

func (p *packer) dir(e Entry, h *tar.Header) error {
	f, err := p.root.openDir(e.Path)
	if err != nil {
		return err
	}
	all, err := readXattrs(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	addXattrs(h, all)
	h.Typeflag = tar.TypeDir
	h.Name += "/"
	if err := p.out.WriteHeader(h); err != nil || !e.Opaque {
		return err
	}
	return p.out.WriteHeader(markerHeader(e.Path, opaqueName))
}

// addXattrs adds extended attributes to a header. They are in a record of our own, in order,
// if the usual records cannot have them: if a name contains "=", or if there are so many
// that they may fit a file in one order and not in another.
func addXattrs(h *tar.Header, all []xattr) {
	const always, each = 3 << 10, 32 // bytes that fit in any order, and the overhead of each
	size, plain := 0, true
	for _, a := range all {
		size += each + len(a.name) + len(a.value)
		plain = plain && !strings.Contains(a.name, "=")
	}
	if plain && size <= always {
		for _, a := range all {
			h.PAXRecords[recordXattr+a.name] = a.value
		}
		return
	}
	var b []byte
	for _, a := range all {
		for _, s := range []string{a.name, a.value} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	h.PAXRecords[recordXattrs] = string(b)
}

func (p *packer) symlink(e Entry, h *tar.Header) error {
	target := make([]byte, maxTarget+1)
	err := p.root.withParent(e.Path, func(dir int, name string) error {
		n, err := unix.Readlinkat(dir, name, target)
		target = target[:max(n, 0)]
		return err
	})
	if err != nil {
		return err
	}
	h.Typeflag, h.Linkname = tar.TypeSymlink, string(target)
	return p.out.WriteHeader(h)
}

func (p *packer) file(e Entry, h *tar.Header) error {
	if e.Links > 1 {
		if first, ok := p.links[e.Inode]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, entryName.encode(first)
			if needsEscape(first) {
				h.PAXRecords[recordLink] = first
			}
			return p.out.WriteHeader(h)
		}
		p.links[e.Inode] = e.Path
	}
	if p.left -= e.Size; p.left < 0 {
		return ErrTooBig
	}
	f, err := p.root.Regular(e.Path)
	if err != nil {
		return err
	}
	return errors.Join(p.content(e, h, f), f.Close())
}

// content writes a file, as a sparse one if it has large holes.
func (p *packer) content(e Entry, h *tar.Header, f *os.File) error {
	all, err := readXattrs(f)
	if err != nil {
		return err
	}
	addXattrs(h, all)
	var extents []int64
	data := int64(0)
	err = eachExtent(f, e.Size, func(at, n int64) error {
		extents = append(extents, at, n)
		data += n
		return nil
	})
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, e.Size
	if e.Size-data < sparseFrom || len(extents) > maxExtents {
		extents = []int64{0, e.Size}
	} else {
		h.Size = data
		h.PAXRecords[recordSize], h.PAXRecords[recordExtents] = strconv.FormatInt(e.Size, 10), joinNumbers(extents)
	}
	if err := p.out.WriteHeader(h); err != nil {
		return err
	}
	for i := 0; i+1 < len(extents); i += 2 {
		if _, err := io.Copy(p.out, io.NewSectionReader(f, extents[i], extents[i+1])); err != nil {
			return err
		}
	}
	return nil
}

// joinNumbers writes numbers with commas between them.
func joinNumbers(extents []int64) string {
	var b strings.Builder
	for i, n := range extents {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(n, 10))
	}
	return b.String()
}
