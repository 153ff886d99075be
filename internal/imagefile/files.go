package imagefile

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// Files are what an image consists of where it lies on this machine.
type Files interface {
	// Open opens a file for reading and says how large it is.
	Open(name string) (io.ReadCloser, int64, error)
	io.Closer
}

// readDocument reads a small file whole.
func readDocument(from Files, name string) ([]byte, error) {
	f, size, err := from.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if size > MaxDocument {
		return nil, fmt.Errorf("%.200q has %d bytes", name, size)
	}
	return io.ReadAll(io.LimitReader(f, MaxDocument))
}

// Dir is files in a directory.
type Dir struct{ *os.Root }

// OpenDir finds the files in a directory.
func OpenDir(name string) (Dir, error) {
	root, err := os.OpenRoot(name)
	return Dir{root}, err
}

// Open opens a file of an image.
func (d Dir) Open(name string) (io.ReadCloser, int64, error) {
	f, err := d.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%.200q is no file", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// Tar is files in a tar.
type Tar struct {
	tar   *os.File
	found map[string]tarFile
}

// tarFile is where a file lies in a tar, or which other name it has.
type tarFile struct {
	at, size int64
	link     string
}

const (
	maxTarFiles = 10_000
	maxPath     = 4096
	maxLinks    = 8 // one after the other
)

// OpenTar finds the files in a tar.
func OpenTar(name string) (*Tar, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	t := &Tar{tar: f, found: make(map[string]tarFile)}
	if err := t.index(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, errors.Join(err, f.Close()))
	}
	return t, nil
}

// Close closes the tar.
func (t *Tar) Close() error { return t.tar.Close() }

func (t *Tar) index() error {
	info, err := t.tar.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no file")
	}
	magic := make([]byte, magicLen)
	n, _ := t.tar.ReadAt(magic, 0)
	if compressed(magic[:n]) {
		return errors.New("it is compressed as a whole; decompress it first")
	}
	for in := tar.NewReader(t.tar); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && len(t.found) >= maxTarFiles {
			err = errors.New("it has too many files")
		}
		if err != nil {
			return err
		}
		if err := t.add(h); err != nil {
			return err
		}
	}
}

func (t *Tar) add(h *tar.Header) error {
	name := path.Clean(h.Name)
	if len(name) > maxPath {
		return errors.New("a name in it is too long")
	}
	switch h.Typeflag {
	case tar.TypeReg:
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse.") {
				return fmt.Errorf("%.200q is sparse", name)
			}
		}
		at, err := t.tar.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		t.found[name] = tarFile{at: at, size: h.Size}
	case tar.TypeLink:
		t.found[name] = tarFile{link: path.Clean(h.Linkname)}
	case tar.TypeSymlink:
		t.found[name] = tarFile{link: path.Join(path.Dir(name), h.Linkname)} //nolint:gosec // it is looked up in found
	}
	return nil
}

// Open opens a file of an image.
func (t *Tar) Open(name string) (io.ReadCloser, int64, error) {
	at := path.Clean(name)
	for range maxLinks {
		f, ok := t.found[at]
		switch {
		case !ok:
			return nil, 0, fmt.Errorf("find %.200q: %w", name, fs.ErrNotExist)
		case f.link != "":
			at = f.link
			continue
		}
		return io.NopCloser(io.NewSectionReader(t.tar, f.at, f.size)), f.size, nil
	}
	return nil, 0, fmt.Errorf("find %.200q: too many links", name)
}
