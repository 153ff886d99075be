package runner

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
)

// PackTree writes a tar of name in root, as Tree describes it.
func PackTree(w io.Writer, root *os.Root, name string) (TreeStatus, error) {
	p := &packer{root: root, tar: tar.NewWriter(w), buf: make([]byte, 64<<10)}
	err := p.pack(name)
	if err == nil {
		err = p.tar.Close()
	}
	return p.status, err
}

type packer struct {
	root   *os.Root
	tar    *tar.Writer
	buf    []byte
	status TreeStatus
}

// pack packs name and everything below it. It skips entries that were removed or
// replaced since they were listed.
func (p *packer) pack(name string) error {
	at, err := p.root.Lstat(name)
	if err == nil {
		h := &tar.Header{Name: name, Mode: int64(at.Mode().Perm()), ModTime: at.ModTime(), Format: tar.FormatPAX}
		switch mode := at.Mode(); {
		case mode.IsRegular():
			h.Typeflag = tar.TypeReg
			err = p.packFile(h)
		case mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
			err = p.packDir(h, name)
		case mode&fs.ModeSymlink != 0:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = p.root.Readlink(name); err == nil {
				err = p.header(h)
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

func (p *packer) packDir(h *tar.Header, name string) error {
	f, err := p.root.OpenFile(name, os.O_RDONLY|openDirectory|openNoFollow, 0)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := p.header(h); err != nil {
		return err
	}
	slices.Sort(names)
	for _, below := range names {
		if err := p.pack(path.Join(name, below)); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) header(h *tar.Header) error {
	if err := p.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %q: %w", h.Name, err)
	}
	p.status.Files++
	return nil
}

// packFile packs as many bytes of a file as it had when it was opened.
func (p *packer) packFile(h *tar.Header) error {
	// If it was replaced by a FIFO, opening it must not block.
	f, err := p.root.OpenFile(h.Name, os.O_RDONLY|openNonblock|openNoFollow, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	at, err := f.Stat()
	if err != nil {
		return err
	}
	if !at.Mode().IsRegular() {
		return nil
	}
	h.Size = at.Size()
	if err := p.header(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{p.tar}, struct{ io.Reader }{io.LimitReader(f, h.Size)}, p.buf)
	if err == nil && n < h.Size {
		p.status.Changed++
		_, err = io.CopyBuffer(struct{ io.Writer }{p.tar}, io.LimitReader(zeroes{}, h.Size-n), p.buf)
	}
	if err != nil {
		return fmt.Errorf("pack %q: %w", h.Name, err)
	}
	p.status.Bytes += h.Size
	return nil
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
