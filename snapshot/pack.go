//go:build linux

package snapshot

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// codecs pools encoders and decoders, which are large. None of them has a goroutine.
type codecs struct{ encoders, decoders sync.Pool }

func (c *codecs) encoder() *zstd.Encoder {
	if e, ok := c.encoders.Get().(*zstd.Encoder); ok {
		return e
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are wrong
	}
	return e
}

func (c *codecs) decoder() *zstd.Decoder {
	if d, ok := c.decoders.Get().(*zstd.Decoder); ok {
		return d
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		panic(err) // the options are wrong
	}
	return d
}

// maxWindow bounds the memory that decompressing a blob can take.
const maxWindow = 128 << 20

// pack writes a directory as a tar, compressed, and returns the digest of the tar.
func (s *Store) pack(ctx context.Context, dir string, index layer.Index, w io.Writer) (dormouse.Digest, error) {
	e := s.codecs.encoder()
	defer func() {
		e.Reset(nil)
		s.codecs.encoders.Put(e)
	}()
	e.Reset(&spaceWriter{w, layer.SpaceIn(s.opts.Dir)})
	sum := sha256.New()
	out := bufio.NewWriterSize(&cappedWriter{io.MultiWriter(sum, e), tarLimit(s.opts.Limits)}, bufferSize)
	if err := index.Pack(ctx, dir, s.opts.Limits, out); err != nil {
		return "", err
	}
	if err := errors.Join(out.Flush(), e.Close()); err != nil {
		return "", err
	}
	return digestOf(sum), nil
}

const bufferSize = 64 << 10

func digestOf(h hash.Hash) dormouse.Digest {
	return dormouse.DigestOfSum([sha256.Size]byte(h.Sum(nil)))
}

// tarLimit is how long the tar of a layer can be. Beside the content of files it has
// their headers, which are small unless files have large extended attributes.
func tarLimit(l layer.Limits) int64 { return l.Bytes + int64(l.Entries)*tarPerEntry + tarPerEntry }

const tarPerEntry = 16 << 10

// cappedWriter and cappedReader fail with layer.ErrTooBig after a number of bytes.
type cappedWriter struct {
	to   io.Writer
	left int64
}

func (c *cappedWriter) Write(b []byte) (int, error) {
	if c.left -= int64(len(b)); c.left < 0 {
		return 0, layer.ErrTooBig
	}
	return c.to.Write(b)
}

// spaceWriter leaves the reserve of the disk alone.
type spaceWriter struct {
	to    io.Writer
	space *layer.Space
}

func (r *spaceWriter) Write(b []byte) (int, error) {
	if err := r.space.Take(int64(len(b))); err != nil {
		return 0, err
	}
	return r.to.Write(b)
}

type cappedReader struct {
	from io.Reader
	left int64
}

func (c *cappedReader) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	if c.left -= int64(n); c.left < 0 {
		return 0, layer.ErrTooBig
	}
	return n, err
}

// read calls do with the tar of a layer, and fails unless the tar and the blob match the
// digests of the layer. Received, which may be nil, is told how many bytes of the blob
// were read.
func (s *Store) read(ctx context.Context, l dormouse.Layer, received func(int), do func(tar io.Reader) error) error {
	packed, _, err := s.opts.Blobs.Open(ctx, l.Digest)
	if err != nil {
		return err
	}
	defer func() { _ = packed.Close() }()
	d := s.codecs.decoder()
	defer func() {
		_ = d.Reset(nil)
		s.codecs.decoders.Put(d)
	}()
	in := &watchedReader{from: packed, received: received}
	if err := d.Reset(in); err != nil {
		return err
	}
	sum := sha256.New()
	out := &watchedReader{from: d}
	plain := io.TeeReader(&cappedReader{out, tarLimit(s.opts.Limits)}, sum)
	err = do(plain)
	if err == nil {
		// The digest covers what follows the end of the tar, too.
		_, err = io.Copy(io.Discard, plain)
	}
	if err != nil && !errors.Is(layer.Full(err), dormouse.ErrFull) && !errors.Is(err, layer.ErrTooBig) {
		_, _ = io.Copy(io.Discard, in) // a corrupt blob is found at its end
	}
	switch {
	case err == nil:
	case in.err != nil:
		return in.err
	case out.err != nil:
		return fmt.Errorf("%w: %w", blob.ErrCorrupt, out.err)
	default:
		return err
	}
	if got := digestOf(sum); got != l.DiffID {
		return fmt.Errorf("it unpacks to %s, not %s: %w", got, l.DiffID, blob.ErrCorrupt)
	}
	return nil
}

// watchedReader counts the bytes that are read, and remembers the error that ended them.
type watchedReader struct {
	from     io.Reader
	received func(int) // may be nil
	err      error
}

func (w *watchedReader) Read(b []byte) (int, error) {
	n, err := w.from.Read(b)
	if w.received != nil && n > 0 {
		w.received(n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}
