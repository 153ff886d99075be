//go:build linux

package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
)

// ExpandSparse rewrites the tar of a layer so that other programs can read it: the holes of
// sparse files are written as zeros. It reports whether there were any.
func ExpandSparse(ctx context.Context, from io.Reader, l Limits, to io.Writer) (expanded bool, err error) {
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
			return expanded, fmt.Errorf("expand sparse files: %w", err)
		}
		size, extents, err := extentsOf(h)
		if err != nil {
			return expanded, fmt.Errorf("expand %.200q: %w", h.Name, err)
		}
		if l.Bytes -= size; l.Bytes < 0 {
			return expanded, fmt.Errorf("expand %.200q: %w", h.Name, ErrTooBig)
		}
		if _, ok := h.PAXRecords[recordSize]; ok {
			expanded = true
			delete(h.PAXRecords, recordSize)
			delete(h.PAXRecords, recordExtents)
		}
		h.Size, h.Format = size, tar.FormatPAX
		if err := out.WriteHeader(h); err != nil {
			return expanded, fmt.Errorf("expand %.200q: %w", h.Name, err)
		}
		if err := expandFile(out, size, extents, in); err != nil {
			return expanded, fmt.Errorf("expand %.200q: %w", h.Name, err)
		}
	}
	if err := out.Close(); err != nil {
		return expanded, fmt.Errorf("expand sparse files: %w", err)
	}
	return expanded, nil
}

// expandFile writes the extents of a file, and zeros between them.
func expandFile(out io.Writer, size int64, extents []int64, in io.Reader) error {
	at := int64(0)
	for i := 0; i+1 < len(extents); i += 2 {
		if _, err := io.CopyN(out, zeros{}, extents[i]-at); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, extents[i+1]); err != nil {
			return err
		}
		at = extents[i] + extents[i+1]
	}
	_, err := io.CopyN(out, zeros{}, size-at)
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
