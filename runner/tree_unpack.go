package runner

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxTreeEntries bounds the entries of a tar that is unpacked.
const maxTreeEntries = 1_000_000

// UnpackTree unpacks a tar below root. Nothing outside root is created, changed
// or read, whatever the tar says. Links may point anywhere, as they did where
// they came from; nothing is unpacked through one that leaves root.
func UnpackTree(root *os.Root, from io.Reader) (TreeStatus, error) {
	return unpackTree(root, from, maxTreeEntries)
}

func unpackTree(root *os.Root, from io.Reader, limit int) (TreeStatus, error) {
	r := &ending{Reader: from}
	u := &unpacker{root: root, tar: tar.NewReader(r), buf: make([]byte, 64<<10)}
	for {
		h, err := u.tar.Next()
		if errors.Is(err, io.EOF) {
			if r.ended {
				return u.status, fmt.Errorf("tar has no end: %w", io.ErrUnexpectedEOF)
			}
			return u.status, u.finishDirs()
		}
		if err == nil && u.status.Files >= limit {
			err = fmt.Errorf("more than %d entries", limit)
		}
		if err != nil {
			return u.status, fmt.Errorf("read tar: %w", err)
		}
		if err := u.unpack(h); err != nil {
			return u.status, fmt.Errorf("unpack %.200q: %w", h.Name, err)
		}
		u.status.Files++
	}
}

// ending records whether its reader has reached its end. A tar's reader must not end
// before the tar does.
type ending struct {
	io.Reader
	ended bool
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.Reader.Read(b)
	if n == 0 && err != nil { // not with the last piece
		e.ended = true
	}
	return n, err
}

type unpacker struct {
	root   *os.Root
	tar    *tar.Reader
	buf    []byte
	dirs   []unpackedDir
	status TreeStatus
}

// unpackedDir gets its permissions and times once its contents are unpacked.
type unpackedDir struct {
	name string
	mode fs.FileMode
	time time.Time
}

func (u *unpacker) unpack(h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeXGlobalHeader, tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return nil
	}
	name := path.Clean(h.Name)
	if len(name) > MaxPath || !filepath.IsLocal(name) {
		return errors.New("its name leaves the tree")
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm //nolint:gosec // only the lowest bits count
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.makeDir(name); err != nil {
			return err
		}
		u.dirs = append(u.dirs, unpackedDir{name, mode, h.ModTime})
		return nil
	case tar.TypeReg:
		return u.unpackFile(h, name, mode)
	case tar.TypeSymlink, tar.TypeLink:
		return u.place(name, func() error {
			if h.Typeflag == tar.TypeSymlink {
				return u.root.Symlink(h.Linkname, name)
			}
			return u.root.Link(path.Clean(h.Linkname), name)
		})
	default:
		return fmt.Errorf("it is of the unknown kind %q", h.Typeflag)
	}
}

// place creates the entry at name, after removing what is in its way.
func (u *unpacker) place(name string, put func() error) error {
	err := put()
	if !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := u.clearWay(name); err != nil {
		return err
	}
	return put()
}

// clearWay creates the parent directory of name and removes a file that is at name. It
// does not remove a directory.
func (u *unpacker) clearWay(name string) error {
	if name == "." {
		return errors.New("it is a directory")
	}
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	at, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case at.IsDir():
		return errors.New("it is a directory")
	}
	return u.root.Remove(name)
}

func (u *unpacker) makeDir(name string) error {
	if at, err := u.root.Lstat(name); err == nil && at.IsDir() {
		return nil
	}
	return u.place(name, func() error { return u.root.Mkdir(name, 0o755) })
}

func (u *unpacker) unpackFile(h *tar.Header, name string, mode fs.FileMode) error {
	// A sparse file costs its sender nothing, but unpacked it would fill our disk.
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return errors.New("it is sparse")
		}
	}
	var f *os.File
	err := u.place(name, func() (err error) {
		f, err = u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|openNoFollow, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{u.tar}, u.buf)
	u.status.Bytes += n
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(name, time.Time{}, h.ModTime)
}

// finishDirs sets the permissions and times of directories, the deepest first. Set
// earlier, they would block the unpacking, or be overwritten by it.
func (u *unpacker) finishDirs() error {
	for _, d := range slices.Backward(u.dirs) {
		at, err := u.root.Lstat(d.name)
		if err != nil || !at.IsDir() {
			continue // a later entry has taken its place
		}
		if err := u.root.Chmod(d.name, d.mode); err != nil {
			return fmt.Errorf("unpack %.200q: %w", d.name, err)
		}
		if err := u.root.Chtimes(d.name, time.Time{}, d.time); err != nil {
			return fmt.Errorf("unpack %.200q: %w", d.name, err)
		}
	}
	return nil
}
