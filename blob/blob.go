// Package blob is the promise of a place that keeps bytes by their digest.
package blob

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
)

// ErrCorrupt means that the bytes found are not those of the digest.
var ErrCorrupt = errors.New("blob is corrupt")

// Store keeps immutable bytes.
type Store interface {
	// Put must have made b durable, under its digest, when it returns nil. Putting
	// the same bytes again must succeed and change nothing. A full disk must be
	// dormouse.ErrFull.
	Put(ctx context.Context, b []byte) (dormouse.Digest, error)
	// Get must return the bytes of d, dormouse.ErrNotFound, or ErrCorrupt; it must
	// never return other bytes.
	Get(ctx context.Context, d dormouse.Digest) ([]byte, error)
	// Delete must succeed for what is not there.
	Delete(ctx context.Context, d dormouse.Digest) error
}
