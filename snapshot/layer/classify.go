//go:build linux

package layer

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// archiveReader reads an archive, and remembers the error that ended it.
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

// classify makes an error ErrMalformed if the archive is to blame for it, and not its
// reader, the limits or this machine.
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

// inputErrnos are the errors of system calls that are due to a name or a number in the
// archive.
var inputErrnos = []unix.Errno{
	unix.EEXIST, unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.EMLINK, unix.ENAMETOOLONG, unix.EXDEV, unix.EINVAL, unix.EILSEQ,
	unix.EFBIG, unix.EOVERFLOW, unix.E2BIG, unix.ERANGE,
}
