package dir

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// hold opens a directory and locks it, against other processes as well as our
// own, until it is let go. Those who put share it; who removes has it alone.
func hold(path string, how int) (*os.File, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(d.Fd()), how)
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, d.Close())
		}
	}
}

// letGo closes what was only read.
func letGo(d io.Closer) { _ = d.Close() }
