//go:build linux

package layer

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// RootFS is a root file system that the layers of an image are applied to, the lowest
// first. As a target of an unpacker it differs from a layer in that names lead through the
// links of layers below, what is there is replaced, and a whiteout removes what it hides.
// It must not be written to otherwise meanwhile.
type RootFS struct {
	root beneath.Dir
	path string // of root, as the kernel writes it
	most int    // entries
	all  *unpacker
	seed maphash.Seed
	// layer holds the paths that the layer at hand has put something at, and the
	// directories above: a whiteout hides only what lower layers have. A hash for each path
	// bounds what long paths can cost; the author of an image does not know the seed.
	layer map[uint64]struct{}
	buf   []byte
}

// NewRootFS makes an empty directory to apply layers to. The limits are of all layers
// together; the lengths of paths are bounded one by one.
func NewRootFS(dir string, l Limits) (*RootFS, error) {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as seen inside; other users outside cannot get this far
		return nil, err
	}
	root, err := beneath.Open(dir)
	if err != nil {
		return nil, err
	}
	at, err := root.Path()
	if err == nil {
		err = root.Chmod(0o755) // whatever the umask is
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	r := &RootFS{root: root, path: at, most: l.Entries, seed: maphash.MakeSeed(), buf: make([]byte, copyBuffer)}
	r.all = newUnpacker(applied, r, l)
	return r, nil
}

// Apply applies one layer, a tar, over those before. If it fails, the root file system
// is of no use. If the tar is to blame, the error is one of the errors of layers.
func (r *RootFS) Apply(ctx context.Context, from io.Reader) error {
	r.layer = make(map[uint64]struct{})
	return r.all.unpack(ctx, from)
}

// Entries is how many entries the layers had so far.
func (r *RootFS) Entries() int { return r.most - r.all.left.Entries }

// Skipped is how many of them were left out.
func (r *RootFS) Skipped() int { return r.all.skipped }

// Close closes the directory.
func (r *RootFS) Close() error { return r.root.Close() }

// put makes something at a path, in directories that are made if they are missing.
func (r *RootFS) put(path string, mk func(p place) error) error {
	p, err := r.reach(path)
	if err != nil {
		return err
	}
	r.note(p.path())
	return errors.Join(mk(p), p.release())
}

// dir makes a directory, or changes one that is there and leaves what is in it.
func (r *RootFS) dir(it item, _ bool) error {
	if it.Path == "." {
		return place{dir: r.root, name: "."}.setMetadata(it.Entry)
	}
	return r.put(it.Path, func(p place) error {
		f, err := p.openDir()
		if err == nil {
			err = f.Close()
		} else {
			err = p.replace(p.mkdir)
		}
		if err != nil {
			return err
		}
		return p.setMetadata(it.Entry)
	})
}

func (r *RootFS) file(it item, in io.Reader) error {
	return r.put(it.Path, func(p place) error {
		return p.replace(func() error {
			f, err := p.create()
			if err != nil {
				return err
			}
			if err := errors.Join(writeExtents(f, it, in, nil, r.buf), f.Close()); err != nil {
				return err
			}
			return p.setMetadata(it.Entry)
		})
	})
}

// symlink makes a link that may say anything. It is followed inside the root only, here
// and in a sandbox.
func (r *RootFS) symlink(it item) error {
	return r.put(it.Path, func(p place) error {
		if err := p.replace(func() error { return unix.Symlinkat(it.to, int(p.dir.Fd()), p.name) }); err != nil {
			return err
		}
		return p.setMetadata(it.Entry)
	})
}

func (r *RootFS) fifo(it item) error {
	return r.put(it.Path, func(p place) error {
		if err := p.replace(func() error { return unix.Mknodat(int(p.dir.Fd()), p.name, unix.S_IFIFO|0o600, 0) }); err != nil {
			return err
		}
		return p.setMetadata(it.Entry)
	})
}

func (r *RootFS) link(from, to string) error {
	return r.put(to, func(p place) error {
		of, err := r.find(from)
		if err != nil {
			return err
		}
		if of.path() == p.path() {
			return errors.Join(errors.New("it is a link to itself"), of.release())
		}
		err = p.replace(func() error { return unix.Linkat(int(of.dir.Fd()), of.name, int(p.dir.Fd()), p.name, 0) })
		if errors.Is(err, unix.EPERM) {
			err = errors.New("a hard link to a directory is not permitted")
		}
		return errors.Join(err, of.release())
	})
}

// mkWhiteout removes what lower layers have at a path.
func (r *RootFS) mkWhiteout(at string) error {
	return r.hide(at, func(p place) error { return r.hideAt(p) })
}

// setOpaque removes what lower layers have in a directory.
func (r *RootFS) setOpaque(dir string) error {
	return r.hide(path.Join(dir, "x"), func(p place) error {
		in := strings.TrimSuffix(p.in, "/")
		p.name = "."
		return r.hideIn(p, in)
	})
}

// hide calls do with the place of a path. In a directory that is not there is nothing to
// hide.
func (r *RootFS) hide(at string, do func(place) error) error {
	p, err := r.find(at)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(do(p), p.release())
}

func (r *RootFS) hideAt(p place) error {
	if !r.noted(p.path()) {
		return p.remove()
	}
	err := r.hideIn(p, p.path())
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // it is of this layer itself
	}
	return err
}

// hideIn hides everything in the directory that a place has, which is at a path.
func (r *RootFS) hideIn(p place, at string) error {
	return p.each(func(c place) error {
		c.in = ""
		if at != "" {
			c.in = at + "/"
		}
		return r.hideAt(c)
	})
}

// note remembers that the layer at hand has put something at a path.
func (r *RootFS) note(at string) {
	for ; at != "."; at = path.Dir(at) {
		key := maphash.String(r.seed, at)
		if _, ok := r.layer[key]; ok {
			return
		}
		r.layer[key] = struct{}{}
	}
}

func (r *RootFS) noted(at string) bool {
	_, ok := r.layer[maphash.String(r.seed, at)]
	return ok
}
