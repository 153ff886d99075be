package s3

import (
	"context"
	"fmt"
	"net/http"
	"syscall"

	"errors"

	"github.com/minio/minio-go/v7"

	"github.com/dormouse-run/dormouse"
)

// because says in our words why a request failed.
func because(ctx context.Context, err error) error {
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
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT): // where streams wait
		return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
	}
	return err
}

// refused reports whether the server answered with one of these codes.
func refused(err error, codes ...string) bool {
	answer := minio.ToErrorResponse(err)
	for _, code := range codes {
		if answer.Code == code {
			return true
		}
	}
	return false
}
