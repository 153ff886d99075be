// Package blob is the port of a content-addressed store: bytes by their digest.
package blob

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/dormouse-run/dormouse"
)

// ErrCorrupt means that the bytes found are not those of the digest.
var ErrCorrupt = errors.New("blob is corrupt")

// Store stores immutable bytes.
type Store interface {
	// Put must have made b durable, under its digest, when it returns nil. Putting
	// the same bytes again must succeed and change nothing but when they were
	// last put. A full disk must be dormouse.ErrFull.
	Put(ctx context.Context, b []byte) (dormouse.Digest, error)
	// Get must return the bytes of d, dormouse.ErrNotFound, or ErrCorrupt; it must
	// never return other bytes.
	Get(ctx context.Context, d dormouse.Digest) ([]byte, error)
	// PutFrom is Put of all that r has, which is never held in memory at once, and
	// returns how much that was. If r fails, nothing must be left of it.
	PutFrom(ctx context.Context, r io.Reader) (dormouse.Digest, int64, error)
	// Open is Get as a reader, and returns the number of bytes. Reading must fail with
	// ErrCorrupt before it ends if the bytes are not those of d: a caller that has read
	// that many bytes, or got io.EOF, has read d. It must fail when ctx ends.
	Open(ctx context.Context, d dormouse.Digest) (io.ReadCloser, int64, error)
	// Delete must succeed for what is not there.
	Delete(ctx context.Context, d dormouse.Digest) error
}

// Collectable is a store from which unreferenced blobs can be removed while others put.
// A caller puts a blob before it refers to it. So a blob that was put a while ago and
// is not referred to by now never will be without another put.
type Collectable interface {
	// Each must call f with every blob that was last put before a time, and end
	// with its error. It may skip what is put or deleted in the meantime.
	Each(ctx context.Context, before time.Time, f func(dormouse.Digest) error) error
	// Collect must delete d and report so, unless it was put again since: a blob that
	// was last put at or after before must stay, even if it is put at that moment. What
	// is not there must succeed.
	Collect(ctx context.Context, d dormouse.Digest, before time.Time) (bool, error)
}
