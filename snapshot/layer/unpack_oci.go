//go:build linux

package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// UnpackOCI is Unpack for a layer of any image. Directories may come after what is in
// them, more than once or not at all, and names may begin at a root. Devices, and
// what one file system kept for itself, are left out; left is how many there were.
func UnpackOCI(ctx context.Context, from io.Reader, l Limits, dir string) (left int, err error) {
	r, err := openRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("adopt: %w", err)
	}
	defer func() { _ = r.Close() }()
	d := disk{r, SpaceIn(dir)}
	a := adopter{unpacker: newUnpacker(d, l), disk: d, known: make(map[string]int)}
	if err := a.dir("."); err != nil {
		return 0, fmt.Errorf("adopt: %w", err)
	}
	if err := eachHeader(ctx, "adopt", from, a.entry); err != nil {
		return a.skipped, err
	}
	if err := setDirTimes(r, a.dirs); err != nil {
		return a.skipped, fmt.Errorf("adopt: %w", err)
	}
	return a.skipped, nil
}

// adopter makes of what others pack what Pack would have.
type adopter struct {
	unpacker
	disk    disk
	known   map[string]int // where each directory is in dirs
	skipped int
}

// aufs is how a name begins that is what one file system kept for itself in its layers.
const aufs = whiteoutPrefix + whiteoutPrefix

func (a *adopter) entry(h *tar.Header, in io.Reader) (err error) {
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return a.spend()
	case tar.TypeChar, tar.TypeBlock:
		a.skipped++
		return a.spend()
	case tar.TypeGNUSparse:
		h.Typeflag = tar.TypeReg
	case tar.TypeLink:
		if h.Linkname, err = local(h.Linkname); err != nil {
			return err
		}
	}
	if h.Name, err = local(h.Name); err != nil {
		return err
	}
	last := base(h.Name)
	if strings.HasPrefix(last, aufs) && last != opaqueMarker {
		a.skipped++
		return a.spend()
	}
	at, says, err := parseName(h.Name, h.PAXRecords[recordName])
	if err != nil {
		return err
	}
	above := parent(at)
	if says == opaqueName {
		above = at
	}
	if err := a.dir(above); err != nil {
		return err
	}
	if n, again := a.known[at]; again && says == entryName && h.Typeflag == tar.TypeDir {
		return a.again(n, at, h)
	}
	if says == entryName && h.Typeflag == tar.TypeDir {
		a.known[at] = len(a.dirs)
	}
	return a.unpacker.entry(h, in)
}

func (a *adopter) spend() error {
	if a.left.Entries--; a.left.Entries < 0 {
		return ErrTooMany
	}
	return nil
}

// local is a name as it is below the root.
func local(name string) (string, error) {
	if len(name) > maxPath {
		return "", errLongName
	}
	name = path.Clean(strings.TrimLeft(name, "/"))
	if !filepath.IsLocal(name) {
		return "", errName
	}
	return name, nil
}

// dir makes a directory that nothing was said of yet, and those that it is in.
func (a *adopter) dir(at string) error {
	if _, ok := a.kinds[at]; ok {
		return nil // if it is something else, who wants it will see
	}
	if at != "." {
		if err := a.dir(parent(at)); err != nil {
			return err
		}
		if a.kinds[parent(at)] != Dir {
			return nil
		}
	}
	if err := a.spend(); err != nil {
		return err
	}
	if err := a.know(at, Dir); err != nil {
		return err
	}
	a.known[at] = len(a.dirs)
	return a.unpacker.dir(Entry{Path: at, Kind: Dir, Mode: 0o755}, new(tar.Header))
}

// again is a directory that is there already, and only now says what it is like.
func (a *adopter) again(n int, at string, h *tar.Header) error {
	if err := a.spend(); err != nil {
		return err
	}
	e, err := entryOf(at, h)
	if err != nil {
		return err
	}
	all, err := xattrsOf(h)
	if err != nil {
		return err
	}
	a.dirs[n] = e
	return a.disk.furnish(e, all)
}

// ExpandSparse rewrites the tar of a layer so that others read from it what is in it:
// files whose holes were left out have them. It reports whether there were any.
func ExpandSparse(ctx context.Context, from io.Reader, l Limits, to io.Writer) (spread bool, err error) {
	in, out := tar.NewReader(from), tar.NewWriter(to)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return spread, fmt.Errorf("spread: %w", err)
		}
		size, pieces, err := extentsOf(h)
		if err != nil {
			return spread, fmt.Errorf("spread %.200q: %w", h.Name, err)
		}
		if l.Bytes -= size; l.Bytes < 0 {
			return spread, fmt.Errorf("spread %.200q: %w", h.Name, ErrTooBig)
		}
		if _, ok := h.PAXRecords[recordSize]; ok {
			spread = true
			delete(h.PAXRecords, recordSize)
			delete(h.PAXRecords, recordExtents)
		}
		h.Size, h.Format = size, tar.FormatPAX
		if err := out.WriteHeader(h); err != nil {
			return spread, fmt.Errorf("spread %.200q: %w", h.Name, err)
		}
		if err := expandFile(out, size, pieces, in); err != nil {
			return spread, fmt.Errorf("spread %.200q: %w", h.Name, err)
		}
	}
	if err := out.Close(); err != nil {
		return spread, fmt.Errorf("spread: %w", err)
	}
	return spread, nil
}

// expandFile writes the pieces of a file and what lies between them.
func expandFile(out io.Writer, size int64, pieces []int64, in io.Reader) error {
	at := int64(0)
	for i := 0; i+1 < len(pieces); i += 2 {
		if _, err := io.CopyN(out, zeros{}, pieces[i]-at); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, pieces[i+1]); err != nil {
			return err
		}
		at = pieces[i] + pieces[i+1]
	}
	_, err := io.CopyN(out, zeros{}, size-at)
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
