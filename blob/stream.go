package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"

	"github.com/dormouse-run/dormouse"
)

// Copy writes all that r has to w, until ctx ends, and returns its digest and
// how much it was.
func Copy(ctx context.Context, w io.Writer, r io.Reader) (dormouse.Digest, int64, error) {
	sum := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(sum, w), bound{ctx, r}, make([]byte, 256<<10))
	if err != nil {
		return "", n, err
	}
	return dormouse.DigestOfSum([sha256.Size]byte(sum.Sum(nil))), n, nil
}

// bound is a reader for as long as ctx lasts.
type bound struct {
	ctx context.Context // a reader has no other way to hear of it
	r   io.Reader
}

func (b bound) Read(p []byte) (int, error) {
	if err := context.Cause(b.ctx); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

// Verify returns a reader of r, which should have size bytes and those of d. It
// gives the last of them only when all of them were.
func Verify(ctx context.Context, r io.ReadCloser, d dormouse.Digest, size int64) io.ReadCloser {
	return &verified{Closer: r, r: bound{ctx, r}, d: d, left: max(size, 0), sum: sha256.New()}
}

type verified struct {
	io.Closer
	r    bound
	d    dormouse.Digest
	left int64
	sum  hash.Hash
	err  error // how it ended
}

func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.read(p)
	if err == nil {
		return n, nil
	}
	if v.err = err; err != io.EOF { //nolint:errorlint // only the bare one is the end
		v.err = fmt.Errorf("read %s: %w", v.d, err)
	}
	return n, v.err
}

func (v *verified) read(p []byte) (int, error) {
	if v.left == 0 {
		if err := v.check(); err != nil { // if there was nothing to read
			return 0, err
		}
		return 0, io.EOF
	}
	n, err := v.r.Read(p[:min(int64(len(p)), v.left)])
	v.sum.Write(p[:n])
	if v.left -= int64(n); v.left > 0 {
		if err == io.EOF { //nolint:errorlint // as readers return it
			err = fmt.Errorf("%w: %d bytes are missing", ErrCorrupt, v.left)
		}
		return n, err
	}
	if err := v.check(); err != nil {
		return 0, err
	}
	return n, nil
}

func (v *verified) check() error {
	if dormouse.DigestOfSum([sha256.Size]byte(v.sum.Sum(nil))) != v.d {
		return ErrCorrupt
	}
	return nil
}

// ReadAll reads and closes what Open returned.
func ReadAll(r io.ReadCloser, size int64) ([]byte, error) {
	defer func() { _ = r.Close() }() // it was only read
	const believed = 16 << 20        // so much room is made before the bytes are there
	b := bytes.NewBuffer(make([]byte, 0, min(max(size, 0), believed)+bytes.MinRead))
	if _, err := b.ReadFrom(r); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
