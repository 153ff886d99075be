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

// Steady is a connection whose peer may be slow but not silent: it has the time
// of a few beats for each piece, not for the whole.
type Steady struct {
	*net.UnixConn
	Beat time.Duration
}

// piece is how much is written under one deadline.
const piece = 256 << 10

func (s Steady) Read(b []byte) (int, error) {
	_ = s.SetReadDeadline(time.Now().Add(silentBeats * s.Beat))
	return s.UnixConn.Read(b)
}

// Write must not be called by two goroutines at once.
func (s Steady) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		_ = s.SetWriteDeadline(time.Now().Add(silentBeats * s.Beat))
		var k int
		k, err = s.UnixConn.Write(b[n:min(n+piece, len(b))])
		n += k
	}
	return n, err
}

// maxSunPath is what fits a unix socket's address everywhere.
const maxSunPath = 100

// shorten returns a name of path that fits a socket's address, good until done
// is called.
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

// listen takes the place at path. The socket appears there only once it
// listens, and whoever had the place before has lost it.
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
	l.SetUnlinkOnClose(false) // by then the place may be somebody else's
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

// removeSocket removes the socket file at, unless the place is somebody else's.
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

// ListenAt takes the place at path as a link does, for whatever else is to be
// reached from inside.
func ListenAt(path string) (*net.UnixListener, error) {
	l, _, err := listen(path)
	return l, err
}

// Dial reaches whoever listens at path, and says which socket file that was.
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

// answers reports whether somebody listens at path.
func answers(path string) bool {
	c, _, err := Dial(path)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// SameSocket tells a socket file from a later one, which may well be given the
// Same inode.
func SameSocket(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}
