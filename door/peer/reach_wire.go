package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// maxPiece bounds a piece of a stream between servers.
const maxPiece = 32 << 10

// wire is a connection that carries a stream: pieces, each behind its length in
// two bytes. An empty piece says that no more will come that way; a connection
// that ends without one was cut, or its other end has left.
type wire struct {
	c io.ReadWriteCloser

	left  int   // of the piece that is being read
	ended error // why nothing more can be read

	mu  sync.Mutex
	buf []byte // guarded by mu
	fin bool   // guarded by mu
}

var _ session.Conn = (*wire)(nil)

func newWire(c io.ReadWriteCloser) *wire { return &wire{c: c} }

// Read reads what the other end has sent. It is for one reader at a time.
func (w *wire) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if w.left == 0 && w.ended == nil {
		w.ended = w.next()
	}
	if w.ended != nil {
		return 0, w.ended
	}
	n, err := w.c.Read(b[:min(len(b), w.left)])
	w.left -= n
	if err != nil {
		w.ended = cut(err)
	}
	if n > 0 {
		return n, nil
	}
	return 0, w.ended
}

// next reads how long the next piece is.
func (w *wire) next() error {
	var head [2]byte
	if _, err := io.ReadFull(w.c, head[:]); err != nil {
		return cut(err)
	}
	switch n := int(binary.BigEndian.Uint16(head[:])); {
	case n == 0:
		return io.EOF
	case n > maxPiece:
		return fmt.Errorf("a piece of %d bytes: %w", n, dormouse.ErrInvalid)
	default:
		w.left = n
		return nil
	}
}

// cut is what the end of a connection means to who reads a stream.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Write sends b.
func (w *wire) Write(b []byte) (sent int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(b) > 0 {
		n := min(len(b), maxPiece)
		if err := w.piece(b[:n]); err != nil {
			return sent, err
		}
		b, sent = b[n:], sent+n
	}
	return sent, nil
}

// piece must be called with mu held.
func (w *wire) piece(b []byte) error {
	if w.fin {
		return io.ErrClosedPipe
	}
	w.buf = append(binary.BigEndian.AppendUint16(w.buf[:0], uint16(len(b))), b...) //nolint:gosec // at most maxPiece
	_, err := w.c.Write(w.buf)
	return err
}

// CloseWrite says that no more will be sent.
func (w *wire) CloseWrite() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fin {
		return nil
	}
	err := w.piece(nil)
	w.fin = true
	return err
}

// Close ends the stream both ways.
func (w *wire) Close() error { return w.c.Close() }

// hungUp returns once the other end has closed the stream both ways. It is called
// by the one who read it to its end.
func (w *wire) hungUp() { _, _ = io.Copy(io.Discard, w.c) }
