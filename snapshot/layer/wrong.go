//go:build linux

package layer

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// source is an archive as it comes, and why no more of it did.
type source struct {
	from io.Reader
	err  error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// blame says of what stopped an archive from being unpacked that the archive is
// wrong, unless it did not come, is too much, or this machine cannot.
func (s *source) blame(err error) error {
	var number unix.Errno
	switch {
	case err == nil, s.err != nil, errors.Is(err, ErrTooMany), errors.Is(err, ErrTooBig):
		return err
	case errors.As(err, &number) && !slices.Contains(chosen, number):
		return err
	}
	return fmt.Errorf("%w: %w", ErrWrong, err)
}

// chosen is what a kernel says of a name or a number that it was given.
var chosen = []unix.Errno{
	unix.EEXIST, unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.EMLINK, unix.ENAMETOOLONG, unix.EXDEV, unix.EINVAL, unix.EILSEQ,
	unix.EFBIG, unix.EOVERFLOW, unix.E2BIG, unix.ERANGE,
}
