package peer

import (
	"io"

	"github.com/dormouse-run/dormouse/session/visit"
)

// wire is a connection that carries a stream both ways, each sealed for itself. A
// way that ends without saying so was cut, or its other end has left.
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

// CloseWrite says that no more will be sent.
func (w *wire) CloseWrite() error { return w.sealer.Close() }

// Close ends the stream both ways.
func (w *wire) Close() error { return w.c.Close() }

// hungUp returns once the other end has closed the stream both ways. It is called
// by the one who read it to its end.
func (w *wire) hungUp() { _, _ = io.Copy(io.Discard, w.c) }
