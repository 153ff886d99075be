package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Get returns the bytes of d.
func (s *Store) Get(ctx context.Context, d dormouse.Digest) ([]byte, error) {
	r, size, err := s.open(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", d, err)
	}
	b, err := blob.ReadAll(r, size)
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	return b, nil
}

// Open returns a reader of d.
func (s *Store) Open(ctx context.Context, d dormouse.Digest) (io.ReadCloser, int64, error) {
	r, size, err := s.open(ctx, d)
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", d, err)
	}
	return r, size, nil
}

func (s *Store) open(ctx context.Context, d dormouse.Digest) (io.ReadCloser, int64, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, 0, err
	}
	if err := d.Validate(); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", dormouse.ErrNotFound, err)
	}
	key := s.key(blobs, d)
	body, size, err := s.fetch(ctx, key, 0)
	if errors.Is(err, dormouse.ErrNotFound) {
		// Whatever is not a server of ours may say so too. That a blob is lost has
		// consequences, so it must come from one that has our bucket.
		if err := s.checkBucket(ctx); err != nil {
			return nil, 0, err
		}
	}
	if err != nil {
		return nil, 0, err
	}
	r := &stream{ctx: ctx, s: s, key: key, body: body, size: size}
	return &verifyingReader{blob.Verify(ctx, r, d, size), s, d}, size, nil
}

// fetch asks for an object from an offset on, and returns how many bytes follow.
func (s *Store) fetch(ctx context.Context, key string, from int64) (io.ReadCloser, int64, error) {
	var o minio.GetObjectOptions
	if from > 0 {
		if err := o.SetRange(from, 0); err != nil {
			return nil, 0, err
		}
	}
	body, info, _, err := s.client.GetObject(ctx, s.opts.Bucket, key, o)
	if err != nil {
		return nil, 0, classify(ctx, err)
	}
	if info.Size < 0 {
		return nil, 0, errors.Join(errors.New("the server does not say how large the blob is"), body.Close())
	}
	return body, info.Size, nil
}

// stream reads an object and asks again for what is missing when the connection
// breaks. That it breaks says nothing about the bytes.
type stream struct {
	ctx  context.Context // a reader has no other way to hear of it
	s    *Store
	key  string
	body io.ReadCloser
	at   int64
	size int64
	idle int // how often it broke since the last byte came
}

func (r *stream) Read(p []byte) (int, error) {
	for {
		n, err := r.body.Read(p)
		if r.at += int64(n); n > 0 {
			r.idle = 0
			return n, nil
		}
		if err == nil || r.at >= r.size && errors.Is(err, io.EOF) {
			return 0, err
		}
		if err := r.resume(err); err != nil {
			return 0, err
		}
	}
}

// resume asks for the rest, a little later each time.
func (r *stream) resume(broke error) error {
	if errors.Is(broke, io.EOF) {
		broke = io.ErrUnexpectedEOF
	}
	if r.idle++; r.idle >= r.s.opts.Tries {
		return classify(r.ctx, broke)
	}
	if err := backoff(r.ctx, r.idle); err != nil {
		return err
	}
	_ = r.body.Close() // it is broken
	body, left, err := r.s.fetch(r.ctx, r.key, r.at)
	if err != nil {
		r.body = io.NopCloser(errReader{err})
		return err
	}
	r.body = body
	if left != r.size-r.at {
		return fmt.Errorf("%d bytes should follow, the server has %d: %w", r.size-r.at, left, broke)
	}
	return nil
}

func (r *stream) Close() error { return r.body.Close() }

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// backoff waits before a request is sent again, longer each time.
func backoff(ctx context.Context, tried int) error {
	return sleep.For(ctx, min(100*time.Millisecond<<tried, 2*time.Second))
}

// verifyingReader remembers that a blob was corrupt, so that the next put does not trust
// the server's checksum of it.
type verifyingReader struct {
	io.ReadCloser
	s *Store
	d dormouse.Digest
}

func (r *verifyingReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if errors.Is(err, blob.ErrCorrupt) {
		r.s.suspect.Store(r.d, nil)
	}
	return n, err
}
