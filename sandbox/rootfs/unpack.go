//go:build linux

package rootfs

import (
	"archive/tar"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// unpacker lays the layers of an image over each other.
type unpacker struct {
	tree    *tree
	entries int   // so far
	left    int   // entries that may still come
	bytes   int64 // of files that may still come
	skipped int   // devices and pipes
	seed    maphash.Seed
	// layer holds what the layer at hand has put into the tree, and the directories
	// above: a layer hides only what lies below it. A hash for each name bounds what
	// long names can cost; who writes images does not know the seed.
	layer map[uint64]struct{}
	buf   []byte
}

var (
	errTooMany = errors.New("the image has too many entries")
	errTooBig  = errors.New("the image is too large")
)

// newUnpacker makes an empty tree at dir to unpack into.
func newUnpacker(dir string, maxBytes int64, maxEntries int) (*unpacker, error) {
	u := &unpacker{left: maxEntries, bytes: maxBytes, seed: maphash.MakeSeed(), buf: make([]byte, 256<<10)}
	t, err := openTree(dir, u.spend)
	if err != nil {
		return nil, err
	}
	u.tree = t
	return u, nil
}

func (u *unpacker) close() error { return u.tree.close() }

func (u *unpacker) spend() error {
	if u.left--; u.left < 0 {
		return errTooMany
	}
	u.entries++
	return nil
}

// unpack lays one layer, a tar, over those before.
func (u *unpacker) unpack(from io.Reader) error {
	u.layer = make(map[uint64]struct{})
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = u.spend()
		}
		if err != nil {
			return fmt.Errorf("read layer: %w", err)
		}
		if err := u.entry(h, in); err != nil {
			return fmt.Errorf("unpack %.200q: %w", h.Name, err)
		}
	}
}

func (u *unpacker) entry(h *tar.Header, in io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if hidden, ok := strings.CutPrefix(path.Base(name), whiteout); ok {
		return u.hide(path.Dir(name), hidden)
	}
	switch h.Typeflag {
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		u.skipped++
		return nil
	case tar.TypeDir, tar.TypeReg, tar.TypeGNUSparse, tar.TypeSymlink, tar.TypeLink:
	default:
		return fmt.Errorf("it is of the unknown kind %q", h.Typeflag)
	}
	if name == "." {
		return u.rootEntry(h)
	}
	p, err := u.tree.make(name)
	if err != nil {
		return err
	}
	u.note(p.path())
	return errors.Join(u.put(p, h, in), p.close())
}

// clean returns a name as it is below the root. Some write names as if from the
// machine's root, which means the same.
func clean(name string) (string, error) {
	if len(name) > maxPath {
		return "", errors.New("its name is too long")
	}
	name = path.Clean(strings.TrimLeft(name, "/"))
	if !filepath.IsLocal(name) {
		return "", errors.New("its name leaves the image")
	}
	return name, nil
}

// rootEntry is the entry of the root itself.
func (u *unpacker) rootEntry(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return errors.New("the root must be a directory")
	}
	if err := own(u.tree.root, h); err != nil {
		return err
	}
	return place{dir: u.tree.root, name: "."}.stamp(h.ModTime)
}

func (u *unpacker) put(p place, h *tar.Header, in io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return u.putDir(p, h)
	case tar.TypeSymlink:
		return u.putSymlink(p, h)
	case tar.TypeLink:
		return u.putLink(p, h)
	default:
		return u.putFile(p, h, in)
	}
}

// putDir makes a directory, or changes one that is there already and keeps what
// is in it.
func (u *unpacker) putDir(p place, h *tar.Header) error {
	f, err := p.openDir()
	if err != nil {
		err = p.replace(func() (err error) {
			f, err = p.mkdir()
			return err
		})
	}
	if err != nil {
		return err
	}
	if err := errors.Join(own(f, h), f.Close()); err != nil {
		return err
	}
	return p.stamp(h.ModTime)
}

func (u *unpacker) putFile(p place, h *tar.Header, in io.Reader) error {
	// The holes of a sparse file cost the image nothing and us a disk.
	if u.bytes -= h.Size; u.bytes < 0 {
		return errTooBig
	}
	return p.replace(func() error {
		f, err := p.create()
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{in}, u.buf)
		if err == nil {
			err = own(f, h)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		return p.stamp(h.ModTime)
	})
}

// putSymlink makes a link that may say anything. It is followed inside the tree
// only, here and in a sandbox.
func (u *unpacker) putSymlink(p place, h *tar.Header) error {
	uid, gid, err := owner(h)
	if err != nil {
		return err
	}
	err = p.replace(func() error { return unix.Symlinkat(h.Linkname, int(p.dir.Fd()), p.name) })
	if err != nil {
		return err
	}
	if err := unix.Fchownat(int(p.dir.Fd()), p.name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("change its owner: %w", err)
	}
	return p.stamp(h.ModTime)
}

// putLink gives a file another name.
func (u *unpacker) putLink(p place, h *tar.Header) error {
	name, err := clean(h.Linkname)
	if err != nil {
		return fmt.Errorf("link to %.200q: %w", h.Linkname, err)
	}
	to, err := u.tree.find(name)
	if err != nil {
		return fmt.Errorf("link to %.200q: %w", h.Linkname, err)
	}
	if to.path() == p.path() {
		return errors.Join(errors.New("it is a link to itself"), to.close())
	}
	err = p.replace(func() error { return unix.Linkat(int(to.dir.Fd()), to.name, int(p.dir.Fd()), p.name, 0) })
	if err != nil {
		err = fmt.Errorf("link to %.200q: %w", h.Linkname, err)
	}
	return errors.Join(err, to.close())
}

// How a layer says that something below it is gone.
const (
	whiteout = ".wh."
	aufs     = ".wh."     // after that: what one file system kept for itself
	opaque   = ".wh..opq" // after that: everything in this directory is gone
)

// hide removes what lower layers have under a name in dir.
func (u *unpacker) hide(dir, name string) error {
	all := name == opaque
	if !all {
		switch {
		case strings.HasPrefix(name, aufs):
			return nil
		case name == "", name == ".", name == "..":
			return errors.New("it hides nothing")
		}
	}
	p, err := u.tree.find(path.Join(dir, "x"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil // nor is there anything in it
	}
	if err != nil {
		return err
	}
	p.name = name
	if all {
		p.name = "."
		err = u.hideIn(p, strings.TrimSuffix(p.in, "/"))
	} else {
		err = u.hideAt(p)
	}
	return errors.Join(err, p.close())
}

func (u *unpacker) hideAt(p place) error {
	if !u.noted(p.path()) {
		return p.remove()
	}
	err := u.hideIn(p, p.path())
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // it is of this layer itself
	}
	return err
}

// hideIn hides everything in a directory of the tree.
func (u *unpacker) hideIn(p place, at string) error {
	return p.each(func(c place) error {
		c.in = ""
		if at != "" {
			c.in = at + "/"
		}
		return u.hideAt(c)
	})
}

// note remembers that the layer at hand has put something at a path.
func (u *unpacker) note(at string) {
	for ; at != "."; at = path.Dir(at) {
		key := maphash.String(u.seed, at)
		if _, ok := u.layer[key]; ok {
			return
		}
		u.layer[key] = struct{}{}
	}
}

func (u *unpacker) noted(at string) bool {
	_, ok := u.layer[maphash.String(u.seed, at)]
	return ok
}
