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

// classify says in our words why a request failed.
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
	if errors.Is(err, io.EOF) { // nobody must take it for the end of a blob
		return fmt.Errorf("%w: %w: %s", dormouse.ErrUnavailable, io.ErrUnexpectedEOF, err.Error())
	}
	// Whatever else it is, it says nothing of the blob and may be mended: a server
	// that is down, a key that is too old, a bucket that is gone.
	return fmt.Errorf("%w: %w", dormouse.ErrUnavailable, err)
}

// classifySent is because for what was sent. That nothing is found there cannot come
// from a server that has our bucket.
func classifySent(ctx context.Context, err error) error {
	why := classify(ctx, err)
	if errors.Is(why, dormouse.ErrNotFound) {
		return fmt.Errorf("%w: %w", dormouse.ErrUnavailable, err)
	}
	return why
}

// asFull says in our words that the disk on which streams wait is.
func asFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
	}
	return err
}

// hasCode reports whether the server answered with one of these codes.
func hasCode(err error, codes ...string) bool {
	return slices.Contains(codes, minio.ToErrorResponse(err).Code)
}
