package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
)

// maxConcurrent is how many parts of one blob are sent at the same time.
const maxConcurrent = 4

const checksumHeader = "x-amz-checksum-sha256"

// upload sends a body. The server compares what arrives with the checksums that
// are sent ahead. If ours is to be the first, another's that is there by now is
// left alone.
func (s *Store) upload(ctx context.Context, b *body, first bool) error {
	send := s.send
	if b.size > partSize {
		send = s.sendParts
	}
	first = first && !s.unconditional.Load()
	err := send(ctx, b, first)
	if first && hasCode(err, "NotImplemented") {
		s.unconditional.Store(true)
		err = send(ctx, b, false)
	}
	if hasCode(err, minio.PreconditionFailed, "ConditionalRequestConflict") {
		return nil // another writer puts the same; the caller checks next whether it is there
	}
	return classifySent(ctx, err)
}

// send sends a body at once.
func (s *Store) send(ctx context.Context, b *body, first bool) error {
	parts, err := b.parts()
	if err != nil {
		return err
	}
	o := options(first)
	o.UserMetadata = map[string]string{checksumHeader: parts[0].checksum()}
	_, err = s.client.PutObject(ctx, s.opts.Bucket, s.key(blobs, b.digest), b.reader(parts[0]), b.size, "", parts[0].hex(), o)
	return err
}

// options of an object. What is sent is signed with its SHA-256, which the
// server has to compare; the client needs no other way.
func options(first bool) minio.PutObjectOptions {
	o := minio.PutObjectOptions{DisableContentSha256: true}
	if first {
		o.SetMatchETagExcept("*")
	}
	return o
}

// sendParts sends a body in parts, which become an object all at once.
func (s *Store) sendParts(ctx context.Context, b *body, first bool) (err error) {
	parts, err := b.parts()
	if err != nil {
		return err
	}
	key := s.key(blobs, b.digest)
	o := options(false)
	o.UserMetadata = map[string]string{"x-amz-checksum-algorithm": "SHA256"}
	upload, err := s.client.NewMultipartUpload(ctx, s.opts.Bucket, key, o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Patience)
			defer cancel()
			_ = s.client.AbortMultipartUpload(ctx, s.opts.Bucket, key, upload) // sweep tries again
		}
	}()
	sent, err := sendEach(ctx, parts, func(ctx context.Context, n int) (minio.ObjectPart, error) {
		p := parts[n]
		return s.client.PutObjectPart(ctx, s.opts.Bucket, key, upload, n+1, b.reader(p), p.size, minio.PutObjectPartOptions{
			Sha256Hex: p.hex(), DisableContentSha256: true, CustomHeader: http.Header{http.CanonicalHeaderKey(checksumHeader): {p.checksum()}},
		})
	})
	if err != nil {
		return err
	}
	_, err = s.client.CompleteMultipartUpload(ctx, s.opts.Bucket, key, upload, sent, options(first))
	return err
}

// sendEach sends some parts at a time and ends with the first error.
func sendEach(ctx context.Context, parts []part, send func(context.Context, int) (minio.ObjectPart, error)) ([]minio.CompletePart, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sent := make([]minio.CompletePart, len(parts))
	next := make(chan int)
	var running sync.WaitGroup
	for range min(maxConcurrent, len(parts)) {
		running.Go(func() {
			for n := range next {
				p, err := send(ctx, n)
				if err != nil {
					stop(err)
					continue
				}
				sent[n] = minio.CompletePart{PartNumber: n + 1, ETag: p.ETag, ChecksumSHA256: p.ChecksumSHA256}
			}
		})
	}
	for n := range parts {
		select {
		case next <- n:
		case <-ctx.Done():
		}
	}
	close(next)
	running.Wait()
	return sent, context.Cause(ctx)
}

// putMarker puts an empty object, for its name and its time.
func (s *Store) putMarker(ctx context.Context, key string) error {
	nothing := part{sum: sha256.Sum256(nil)}
	_, err := s.client.PutObject(ctx, s.opts.Bucket, key, bytes.NewReader(nil), 0, "", nothing.hex(), options(false))
	return classifySent(ctx, err)
}

// sweepUploads aborts multipart uploads that were abandoned.
func (s *Store) sweepUploads(ctx context.Context, before time.Time) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for u := range s.client.ListIncompleteUploads(ctx, s.opts.Bucket, s.prefix(blobs), true) {
		if u.Err != nil {
			return classify(ctx, u.Err)
		}
		if !u.Initiated.Before(before) {
			continue
		}
		if err := s.client.AbortMultipartUpload(ctx, s.opts.Bucket, u.Key, u.UploadID); err != nil && !hasCode(err, "NoSuchUpload") {
			return classify(ctx, err)
		}
	}
	return nil
}
