//go:build linux

package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
)

// ExpandSparse rewrites the tar of a layer so that others read from it what is in it:
// files whose holes were left out have them. It reports whether there were any.
func ExpandSparse(ctx context.Context, from io.Reader, l Limits, to io.Writer) (spread bool, err error) {
	in, out := tar.NewReader(from), tar.NewWriter(to)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return spread, fmt.Errorf("spread: %w", err)
		}
		size, pieces, err := extentsOf(h)
		if err != nil {
			return spread, fmt.Errorf("spread %.200q: %w", h.Name, err)
		}
		if l.Bytes -= size; l.Bytes < 0 {
			return spread, fmt.Errorf("spread %.200q: %w", h.Name, ErrTooBig)
		}
		if _, ok := h.PAXRecords[recordSize]; ok {
			spread = true
			delete(h.PAXRecords, recordSize)
			delete(h.PAXRecords, recordExtents)
		}
		h.Size, h.Format = size, tar.FormatPAX
		if err := out.WriteHeader(h); err != nil {
			return spread, fmt.Errorf("spread %.200q: %w", h.Name, err)
		}
		if err := expandFile(out, size, pieces, in); err != nil {
			return spread, fmt.Errorf("spread %.200q: %w", h.Name, err)
		}
	}
	if err := out.Close(); err != nil {
		return spread, fmt.Errorf("spread: %w", err)
	}
	return spread, nil
}

// expandFile writes the pieces of a file and what lies between them.
func expandFile(out io.Writer, size int64, pieces []int64, in io.Reader) error {
	at := int64(0)
	for i := 0; i+1 < len(pieces); i += 2 {
		if _, err := io.CopyN(out, zeros{}, pieces[i]-at); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, pieces[i+1]); err != nil {
			return err
		}
		at = pieces[i] + pieces[i+1]
	}
	_, err := io.CopyN(out, zeros{}, size-at)
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
