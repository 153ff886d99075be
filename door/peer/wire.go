package peer

import (
	"io"

	"github.com/dormouse-run/dormouse/session/visit"
)

// wire is a connection that carries a stream in both directions, each sealed under
// its own key. A direction that ends without an end frame was cut off, or the other
// end has left.
type wire struct {
	*opener
	*sealer
	c io.ReadWriteCloser
}

var _ visit.Conn = (*wire)(nil)

// newWire carries a stream over a connection that reads under one key and writes
// under another.
func newWire(c io.ReadWriteCloser, reads, writes []byte) *wire {
	return &wire{opener: newOpener(c, reads), sealer: newSealer(c, writes), c: c}
}

// CloseWrite sends the end frame.
func (w *wire) CloseWrite() error { return w.sealer.Close() }

// Close ends the stream in both directions.
func (w *wire) Close() error { return w.c.Close() }

// awaitClose returns once the other end has closed the connection. It may be called
// only after the stream was read to its end.
func (w *wire) awaitClose() { _, _ = io.Copy(io.Discard, w.c) }
