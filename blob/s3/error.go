package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"

	"github.com/minio/minio-go/v7"

	"github.com/dormouse-run/dormouse"
)

// classify translates the error of a request into one of ours.
func classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	switch answer := minio.ToErrorResponse(err); {
	case answer.Code == minio.NoSuchKey:
		return dormouse.ErrNotFound
	case answer.StatusCode == http.StatusInsufficientStorage, answer.Code == "XMinioStorageFull", answer.Code == "QuotaExceeded":
		return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
	}
	if errors.Is(err, io.EOF) { // it must not be mistaken for the end of a blob
		return fmt.Errorf("%w: %w: %s", dormouse.ErrUnavailable, io.ErrUnexpectedEOF, err.Error())
	}
	// Anything else says nothing about the blob and may be temporary: a server that is
	// down, an expired key, a missing bucket.
	return fmt.Errorf("%w: %w", dormouse.ErrUnavailable, err)
}

// classifySent is classify for requests that send something. A server that has our bucket
// cannot answer those with not found.
func classifySent(ctx context.Context, err error) error {
	why := classify(ctx, err)
	if errors.Is(why, dormouse.ErrNotFound) {
		return fmt.Errorf("%w: %w", dormouse.ErrUnavailable, err)
	}
	return why
}

// asFull wraps an error that says the disk for spooled streams is full in dormouse.ErrFull.
func asFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
	}
	return err
}

// hasCode reports whether the server answered with one of some codes.
func hasCode(err error, codes ...string) bool {
	return slices.Contains(codes, minio.ToErrorResponse(err).Code)
}
