package visit

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse"
)

// resetConn is a connection to a sandbox that died.
type resetConn struct{ Conn }

func (resetConn) Read([]byte) (int, error) {
	return 0, &net.OpError{Op: "read", Net: "unix", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
}

func (resetConn) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "unix", Err: os.NewSyscallError("write", syscall.EPIPE)}
}

func TestAStreamOfASandboxThatDiesIsAConflict(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	v := &Visit{ctx: ctx}
	s := &stream{Conn: resetConn{}, stop: func() bool { return true }}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(v.why(err), dormouse.ErrConflict) {
		t.Errorf("read: %v", v.why(err))
	}
	if _, err := io.WriteString(s, "x"); !errors.Is(v.why(err), dormouse.ErrConflict) {
		t.Errorf("write: %v", v.why(err))
	}
}
