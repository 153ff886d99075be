package inside

import (
	"errors"
	"fmt"
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// openPTY returns both ends of a new terminal.
func openPTY(rows, cols uint16) (master, tty *os.File, err error) {
	p, tty, err := pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	defer func() { _ = p.Close() }()
	if err = pty.Setsize(p, &pty.Winsize{Rows: rows, Cols: cols}); err == nil {
		master, err = dupFile(p)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), tty.Close())
	}
	return master, tty, nil
}

// dupFile duplicates the descriptor of f. Closing the duplicate ends only its own reads
// and writes.
func dupFile(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	dup := -1
	var failed error
	err = raw.Control(func(fd uintptr) {
		dup, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		return nil, errors.Join(err, unix.Close(dup))
	}
	return os.NewFile(uintptr(dup), f.Name()), nil
}
