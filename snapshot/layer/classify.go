//go:build linux

package layer

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// archiveReader is an archive as it comes, and why no more of it did.
type archiveReader struct {
	from io.Reader
	err  error
}

func (s *archiveReader) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// classify says of what stopped an archive from being unpacked that the archive is
// wrong, unless it did not come, is too much, or this machine cannot.
func (s *archiveReader) classify(err error) error {
	var number unix.Errno
	switch {
	case err == nil, s.err != nil, errors.Is(err, ErrTooMany), errors.Is(err, ErrTooBig):
		return err
	case errors.As(err, &number) && !slices.Contains(inputErrnos, number):
		return err
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}

// inputErrnos is what a kernel says of a name or a number that it was given.
var inputErrnos = []unix.Errno{
	unix.EEXIST, unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.EMLINK, unix.ENAMETOOLONG, unix.EXDEV, unix.EINVAL, unix.EILSEQ,
	unix.EFBIG, unix.EOVERFLOW, unix.E2BIG, unix.ERANGE,
}
