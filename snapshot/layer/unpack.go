//go:build linux

package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
)

// Unpack makes a layer in an empty directory from a tar that Pack wrote, or that claims
// to be one. If it fails, the directory is of no use. If the tar is to blame, the error
// is one of the errors of layers.
func Unpack(ctx context.Context, from io.Reader, l Limits, dir string) error {
	_, err := unpackLayer(ctx, from, packed, l, dir)
	return err
}

// UnpackOCI is Unpack for a layer of any OCI image. Directories may come after what is
// in them, more than once or not at all, and names may be absolute. Devices and the
// metadata of AUFS are left out; skipped is how many there were.
func UnpackOCI(ctx context.Context, from io.Reader, l Limits, dir string) (skipped int, err error) {
	return unpackLayer(ctx, from, imported, l, dir)
}

func unpackLayer(ctx context.Context, from io.Reader, p policy, l Limits, dir string) (skipped int, err error) {
	r, err := openRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.verb, err)
	}
	defer func() { _ = r.Close() }()
	u := newUnpacker(p, layerDir{root: r, space: SpaceIn(dir), buf: make([]byte, copyBuffer)}, l)
	u.layer = newContents(l)
	if !p.canonical { // which need not say what the root is like
		if err := u.implyDir("."); err != nil {
			return 0, fmt.Errorf("%s: %w", p.verb, err)
		}
	}
	if err := u.unpack(ctx, from); err != nil {
		return u.skipped, err
	}
	if err := setDirTimes(r, u.layer.dirs); err != nil {
		return u.skipped, fmt.Errorf("%s: %w", p.verb, err)
	}
	return u.skipped, nil
}

// Verify fails if Unpack would refuse a tar. It writes nothing, so it cannot tell what a
// file system would refuse.
func Verify(ctx context.Context, from io.Reader, l Limits) error {
	p := packed
	p.verb = "verify"
	u := newUnpacker(p, discard{}, l)
	u.layer = newContents(l)
	return u.unpack(ctx, from)
}

// unpacker reads archives of unknown authors, and hands what they hold to a target after
// it has checked all of it.
type unpacker struct {
	policy
	to      target
	left    Limits
	opaque  int // how many opaque markers may still come
	skipped int // entries that were left out
	// layer is what the archive held so far, if the target holds this one layer. A target
	// that holds several knows by itself what is there.
	layer *contents
}

func newUnpacker(p policy, to target, l Limits) *unpacker {
	return &unpacker{policy: p, to: to, left: l, opaque: l.Entries}
}

// unpack unpacks one archive. Its errors name the entry that they are about.
func (u *unpacker) unpack(ctx context.Context, from io.Reader) error {
	archive := &archiveReader{from: from}
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", u.verb, archive.classify(err))
		}
		if err := cancelled(ctx); err != nil {
			return fmt.Errorf("%s: %w", u.verb, err)
		}
		if err := u.entry(h, in); err != nil {
			return fmt.Errorf("%s %.200q: %w", u.verb, h.Name, archive.classify(err))
		}
	}
}

// count counts one entry.
func (u *unpacker) count() error {
	if u.left.Entries--; u.left.Entries < 0 {
		return ErrTooMany
	}
	return nil
}

// skip leaves one entry out, which is counted all the same.
func (u *unpacker) skip() error {
	u.skipped++
	return u.count()
}

func (u *unpacker) entry(h *tar.Header, in io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader && !u.canonical {
		return u.count()
	}
	skipped, err := u.skipsType(h)
	if err != nil {
		return err
	}
	if skipped {
		return u.skip()
	}
	path, name, err := u.name(h)
	if err != nil {
		return err
	}
	if name == opaqueName {
		return u.setOpaque(path)
	}
	if u.skips(name, h) {
		return u.skip()
	}
	if err := u.count(); err != nil {
		return err
	}
	it := item{Entry: Entry{Path: path, Kind: Whiteout}}
	if name == entryName {
		if it, err = u.item(path, h); err != nil {
			return err
		}
	}
	again := false
	if u.layer != nil {
		if again, err = u.record(it); err != nil {
			return err
		}
	}
	return u.put(it, again, in)
}

// setOpaque makes a directory opaque. Its marker is not counted as an entry, since a
// scan finds it with the directory, but there may be no more of them than entries.
func (u *unpacker) setOpaque(path string) error {
	if u.opaque--; u.opaque < 0 {
		return ErrTooMany
	}
	if u.layer != nil {
		if err := u.implyDir(path); err != nil {
			return err
		}
		if u.layer.kinds[path] != Dir {
			return errors.New("it makes something opaque that is no directory that came before")
		}
	}
	return u.to.setOpaque(path)
}

// put hands an entry to the target. Again says that it is a directory that is there
// already.
func (u *unpacker) put(it item, again bool, in io.Reader) error {
	switch {
	case it.link:
		return u.to.link(it.to, it.Path)
	case it.Kind == Whiteout:
		return u.to.mkWhiteout(it.Path)
	case it.Kind == Dir:
		return u.to.dir(it, again)
	case it.Kind == Symlink:
		return u.to.symlink(it)
	case it.Kind == Fifo:
		return u.to.fifo(it)
	}
	// The holes of a sparse file cost the archive nothing and us a disk.
	if u.left.Bytes -= it.Size; u.left.Bytes < 0 {
		return ErrTooBig
	}
	return u.to.file(it, in)
}
