package runner

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// DeadlineConn is a connection that fails if its peer is silent for a few heartbeats.
// The deadline is for each read and each piece written, so that a slow peer may take
// longer in all.
type DeadlineConn struct {
	*net.UnixConn
	Heartbeat time.Duration
}

// piece is how much is written under one deadline.
const piece = 256 << 10

func (s DeadlineConn) Read(b []byte) (int, error) {
	_ = s.SetReadDeadline(time.Now().Add(maxMissedHeartbeats * s.Heartbeat))
	return s.UnixConn.Read(b)
}

// Write must not be called by two goroutines at once.
func (s DeadlineConn) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		_ = s.SetWriteDeadline(time.Now().Add(maxMissedHeartbeats * s.Heartbeat))
		var k int
		k, err = s.UnixConn.Write(b[n:min(n+piece, len(b))])
		n += k
	}
	return n, err
}

// CutOff makes an error of a connection say that the sandbox is out of reach. A sandbox
// that dies resets its connections before its death is reported.
func CutOff(err error) error {
	if lost, ok := errors.AsType[*net.OpError](err); ok && !errors.Is(lost, net.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}

// maxSunPath is what fits a unix socket's address everywhere.
const maxSunPath = 100

// shorten returns a name of path that fits a socket's address. It is valid until
// done is called.
func shorten(path string) (short string, done func(), err error) {
	if len(path) <= maxSunPath {
		return path, func() {}, nil
	}
	dir, done, err := shortDir(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, filepath.Base(path)), done, nil
}

// listen listens at path. The socket is renamed there only once it listens, and
// replaces any socket that was there.
func listen(path string) (*net.UnixListener, os.FileInfo, error) {
	tmp := filepath.Join(filepath.Dir(path), "."+rand.Text()[:8])
	short, done, err := shorten(tmp)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for the runner: %w", err)
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("listen for the runner: %w", err)
	}
	l.SetUnlinkOnClose(false) // by then the path may belong to another listener
	place := func() (os.FileInfo, error) {
		if err := os.Chmod(tmp, 0o600); err != nil {
			return nil, err
		}
		at, err := os.Lstat(tmp)
		if err != nil {
			return nil, err
		}
		return at, os.Rename(tmp, path)
	}
	at, err := place()
	if err != nil {
		_ = l.Close()
		_ = os.Remove(tmp)
		return nil, nil, fmt.Errorf("listen for the runner: %w", err)
	}
	return l, at, nil
}

// removeSocket removes the socket file at, unless another one has replaced it.
func removeSocket(path string, at os.FileInfo) error {
	var err error
	if isAt(path, at) {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the runner's socket: %w", err)
	}
	return nil
}

// isAt reports whether the socket file at a path is this one.
func isAt(path string, this os.FileInfo) bool {
	at, err := os.Lstat(path)
	return err == nil && SameSocket(at, this)
}

// ListenAt listens at path as a link does, for other services that the sandbox may
// reach.
func ListenAt(path string) (*net.UnixListener, error) {
	l, _, err := listen(path)
	return l, err
}

// Dial connects to the socket at path and returns which socket file that was.
func Dial(path string) (*net.UnixConn, os.FileInfo, error) {
	short, done, err := shorten(path)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	before, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	after, err := os.Stat(path)
	if err == nil && !SameSocket(before, after) {
		err = errors.New("the socket was replaced")
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, after, nil
}

// answers reports whether a process accepts connections at path.
func answers(path string) bool {
	c, _, err := Dial(path)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// SameSocket reports whether both are one socket file. A later file may be given the
// same inode, so it also compares the times.
func SameSocket(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}
