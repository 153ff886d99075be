package session_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
)

// mapBlobs is a blob store in a map.
type mapBlobs struct {
	mu  sync.Mutex
	m   map[dormouse.Digest][]byte
	put map[dormouse.Digest]time.Time
	bad error // how puts fail, if not nil
}

// fail has every put fail from now on, or none.
func (b *mapBlobs) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = err
}

// unmount takes all blobs away, as a disk that is not there does, until they are brought
// back.
func (b *mapBlobs) unmount() (back func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := maps.Clone(b.m)
	clear(b.m)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		maps.Copy(b.m, kept)
	}
}

func newBlobs() *mapBlobs {
	return &mapBlobs{m: make(map[dormouse.Digest][]byte), put: make(map[dormouse.Digest]time.Time)}
}

func (b *mapBlobs) Put(_ context.Context, raw []byte) (dormouse.Digest, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bad != nil {
		return "", b.bad
	}
	d := dormouse.DigestOf(raw)
	b.m[d], b.put[d] = raw, time.Now()
	return d, nil
}

func (b *mapBlobs) Get(_ context.Context, d dormouse.Digest) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if raw, ok := b.m[d]; ok {
		return raw, nil
	}
	return nil, dormouse.ErrNotFound
}

func (b *mapBlobs) PutFrom(ctx context.Context, r io.Reader) (dormouse.Digest, int64, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return "", 0, err
	}
	d, err := b.Put(ctx, raw)
	return d, int64(len(raw)), err
}

func (b *mapBlobs) Open(ctx context.Context, d dormouse.Digest) (io.ReadCloser, int64, error) {
	raw, err := b.Get(ctx, d)
	return io.NopCloser(bytes.NewReader(raw)), int64(len(raw)), err
}

func (b *mapBlobs) Delete(context.Context, dormouse.Digest) error { return nil }
