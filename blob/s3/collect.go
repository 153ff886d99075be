package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"path"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
)

var _ blob.Collectable = (*Store)(nil)

// second is what servers round times down to.
const second = time.Second

// staleAfter is the age at which what a crash has left is removed. It is more than the
// clock skew that servers accept, which is a quarter of an hour.
const staleAfter = 24 * time.Hour

// Each calls f with every blob that was last put before a time. It first removes
// what a crash has left.
func (s *Store) Each(ctx context.Context, before time.Time, f func(dormouse.Digest) error) error {
	if err := s.sweep(ctx); err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	// Both are in the order of their digests.
	stamp, stop := iter.Pull(s.list(ctx, s.prefix(stamps)))
	defer stop()
	at, more := stamp()
	for object := range s.list(ctx, s.prefix(blobs)) {
		if err := errors.Join(object.Err, at.Err); err != nil {
			return fmt.Errorf("list blobs: %w", classify(ctx, err))
		}
		d := dormouse.Digest("sha256:" + path.Base(object.Key))
		if !valid(d) || s.key(blobs, d) != object.Key {
			continue
		}
		for more && at.Err == nil && at.Key < s.key(stamps, d) {
			at, more = stamp()
		}
		put := object.LastModified
		if more && at.Key == s.key(stamps, d) && at.LastModified.After(put) {
			put = at.LastModified
		}
		if !older(put, before) {
			continue
		}
		if err := f(d); err != nil {
			return err
		}
	}
	return nil
}

// list returns the objects whose keys begin with prefix.
func (s *Store) list(ctx context.Context, prefix string) iter.Seq[minio.ObjectInfo] {
	if err := context.Cause(ctx); err != nil {
		return func(yield func(minio.ObjectInfo) bool) { yield(minio.ObjectInfo{Err: err}) }
	}
	return s.client.ListObjectsIter(ctx, s.opts.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true})
}

// older reports whether a time of the server's is certainly before another. No
// time at all is not.
func older(put, before time.Time) bool { return !put.IsZero() && !put.Add(second).After(before) }

// Collect deletes d unless it was put at or after a time.
//
// S3 cannot delete an object on condition that it was not put again. So a collector
// first announces the deletion, by an object of its own, then checks when the blob was
// put, deletes it if that is long ago, and withdraws the announcement. A writer first
// renews the blob, then lists the announcements, waits until those are gone, and then
// checks whether the blob is there. Of a collector and a writer at the same time, one
// sees the other: if an announcement was not there when the blob was renewed, its
// collector will see that the blob is new.
//
// A collector withdraws its announcement only if it knows how its deletion ended, so
// the deletion is sent once and not retried. The announcement of a collector that has
// died is honoured for a minute, in which a deletion is executed or never will be.
func (s *Store) Collect(ctx context.Context, d dormouse.Digest, before time.Time) (bool, error) {
	if err := context.Cause(ctx); err != nil {
		return false, fmt.Errorf("collect %s: %w", d, err)
	}
	if !valid(d) {
		return false, nil // it cannot be there
	}
	collected, err := s.collect(ctx, d, before)
	if err != nil {
		return false, fmt.Errorf("collect %s: %w", d, err)
	}
	return collected, nil
}

func (s *Store) collect(ctx context.Context, d dormouse.Digest, before time.Time) (bool, error) {
	if old, err := s.expired(ctx, d, before); !old || err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.grace, errors.New("the server is too slow"))
	defer cancel()
	announced := path.Join(s.key(collecting, d), rand.Text())
	if err := s.putMarker(ctx, announced); err != nil {
		return false, err
	}
	old, err := s.expired(ctx, d, before)
	if old && err == nil {
		for _, kind := range []string{blobs, stamps} {
			if err := s.remove(ctx, s.once, s.key(kind, d)); err != nil {
				return false, err // it may still happen, so it stays announced
			}
		}
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	_ = s.remove(ctx, s.client, announced) // if it stays, a writer waits longer than it has to
	return old && err == nil, err
}

// expired reports whether d exists and was last put before a time.
func (s *Store) expired(ctx context.Context, d dormouse.Digest, before time.Time) (bool, error) {
	for _, kind := range []string{blobs, stamps} {
		info, err := s.client.StatObject(ctx, s.opts.Bucket, s.key(kind, d), minio.StatObjectOptions{})
		err = classify(ctx, err)
		if kind == stamps && errors.Is(err, dormouse.ErrNotFound) {
			break // it was put once
		}
		if errors.Is(err, dormouse.ErrNotFound) {
			return false, nil
		}
		if err != nil || !older(info.LastModified, before) {
			return false, err
		}
	}
	return true, nil
}

// awaitCollectors waits until all collectors that have announced by now to delete d
// are done.
func (s *Store) awaitCollectors(ctx context.Context, d dormouse.Digest) error {
	waiting, err := s.collectors(ctx, d)
	begun := time.Now()
	for tried := 0; err == nil && len(waiting) > 0; tried++ {
		if time.Since(begun) > 2*s.grace {
			return s.removeAnnouncements(ctx, waiting)
		}
		if err := backoff(ctx, tried); err != nil {
			return err
		}
		var left map[string]bool
		if left, err = s.collectors(ctx, d); err != nil {
			return err
		}
		for key := range waiting {
			if !left[key] {
				delete(waiting, key)
			}
		}
	}
	return err
}

// collectors lists the announcements of collectors that may be about to delete d.
func (s *Store) collectors(ctx context.Context, d dormouse.Digest) (map[string]bool, error) {
	keys := make(map[string]bool)
	for object := range s.list(ctx, s.key(collecting, d)+"/") {
		if object.Err != nil {
			return nil, classify(ctx, object.Err)
		}
		keys[object.Key] = true
	}
	return keys, nil
}

// removeAnnouncements removes announcements of dead processes.
func (s *Store) removeAnnouncements(ctx context.Context, keys map[string]bool) error {
	for key := range keys {
		if err := s.remove(ctx, s.client, key); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what processes that died long ago have left.
func (s *Store) sweep(ctx context.Context) error {
	before := time.Now().Add(-staleAfter)
	for object := range s.list(ctx, s.prefix(collecting)) {
		if object.Err != nil {
			return classify(ctx, object.Err)
		}
		if !older(object.LastModified, before) {
			continue
		}
		if err := s.remove(ctx, s.client, object.Key); err != nil {
			return err
		}
	}
	return s.sweepUploads(ctx, before)
}
