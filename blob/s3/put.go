package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/minio/minio-go/v7"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// Put stores b under its digest.
func (s *Store) Put(ctx context.Context, b []byte) (dormouse.Digest, error) {
	d := dormouse.DigestOf(b)
	if err := s.put(ctx, &body{digest: d, from: bytes.NewReader(b), size: int64(len(b))}); err != nil {
		return "", fmt.Errorf("put %s: %w", d, err)
	}
	return d, nil
}

// PutFrom stores what r has under its digest. An object is named before it is sent, so the
// stream is spooled to a file until its digest is known.
func (s *Store) PutFrom(ctx context.Context, r io.Reader) (dormouse.Digest, int64, error) {
	b, err := s.spool(ctx, r)
	if err != nil {
		return "", 0, fmt.Errorf("put a stream: %w", asFull(err))
	}
	defer func() { _ = b.file.Close() }() // it is not needed any more
	if err := s.put(ctx, &b.body); err != nil {
		return "", 0, fmt.Errorf("put %s: %w", b.digest, err)
	}
	return b.digest, b.size, nil
}

// spooled is a body in a file.
type spooled struct {
	body
	file *os.File
}

// spool writes a stream to a file that has no name, so that nothing is left of
// it whatever happens.
func (s *Store) spool(ctx context.Context, r io.Reader) (*spooled, error) {
	f, err := os.CreateTemp(s.opts.Temp, "blob-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	d, n, err := blob.Copy(ctx, f, r)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &spooled{body{digest: d, from: f, size: n}, f}, nil
}

// put stores the blob, complete and with the current time. A collector announces itself
// and then looks at that time; one that has announced itself before may have looked too
// early, so put waits for it.
func (s *Store) put(ctx context.Context, b *body) error {
	found, err := s.stat(ctx, b)
	if err != nil {
		return err
	}
	crash.At(crash.BlobWriting)
	for try := range s.opts.Tries {
		if found == whole {
			err = s.putMarker(ctx, s.key(stamps, b.digest))
		} else {
			err = s.upload(ctx, b, found == absent)
		}
		if err != nil {
			return err
		}
		crash.At(crash.BlobSynced)
		if err := s.awaitCollectors(ctx, b.digest); err != nil {
			return err
		}
		crash.At(crash.BlobRenamed)
		if found, err = s.stat(ctx, b); err != nil {
			return err
		}
		if found == whole {
			s.suspect.Delete(b.digest)
			crash.At(crash.BlobWritten)
			return nil
		}
		if err := backoff(ctx, try); err != nil {
			return err
		}
	}
	return fmt.Errorf("the server took %d bytes and has others, or none: %w", b.size, blob.ErrCorrupt)
}

// state is what the server has of a blob.
type state int

const (
	absent state = iota
	other        // bytes that are not the blob's
	whole
)

// stat returns what the server has of a blob. It trusts a checksum that the server has
// verified; without one it reads the blob.
func (s *Store) stat(ctx context.Context, b *body) (state, error) {
	if err := context.Cause(ctx); err != nil {
		return absent, err
	}
	info, err := s.client.StatObject(ctx, s.opts.Bucket, s.key(blobs, b.digest), minio.StatObjectOptions{Checksum: true})
	switch err := classify(ctx, err); {
	case errors.Is(err, dormouse.ErrNotFound):
		return absent, nil
	case err != nil:
		return absent, err
	case info.Size != b.size:
		return other, nil
	}
	if _, suspect := s.suspect.Load(b.digest); !suspect && info.ChecksumSHA256 != "" {
		want, err := b.checksum()
		if err != nil {
			return absent, err
		}
		if info.ChecksumSHA256 == want {
			return whole, nil
		}
	}
	return s.read(ctx, b.digest)
}

// read reads a blob to the end to verify it.
func (s *Store) read(ctx context.Context, d dormouse.Digest) (state, error) {
	r, _, err := s.open(ctx, d)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		_ = r.Close() // it was only read
	}
	switch {
	case errors.Is(err, dormouse.ErrNotFound):
		return absent, nil
	case errors.Is(err, blob.ErrCorrupt):
		return other, nil
	case err != nil:
		return absent, err
	}
	return whole, nil
}
